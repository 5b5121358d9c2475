// SPDX-License-Identifier: Apache-2.0
/// @file stencil/calls/forward.hpp  The forward call of a convolution: AFT Eq. 6, DAFT Eq. 7, 8, without their
/// subtraction.
#pragma once

#include "../../runtime/inplace_vector.hpp"
#include "../grouped/forward.hpp"
#include "../sequence.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Lane tiles [own.first, own.last) of a group of batch elements.
template <class C>
inline void forward_tiles(const stencil_call<C>& call, const stencil_worker<C>& worker, const stencil_item& own,
                          const stencil_item& next) {
  constexpr index_t L = lanes<C>;
  constexpr index_t most = tuning_stencil<C>::group;
  const problem& p = call.p;
  box_complement<C> rest(call.shape, worker.rest);
  const index_t size = p.Tk * L;
  tiles_in_place<C> in_place;
  for (index_t i = own.first; i < own.last; ++i) {
    const index_t in_group = (i - own.first) % worker.group;
    if (in_group == 0) {
      const index_t count = own.some(i, worker.group).count();
      inplace_vector<lane_tile<C>, most> tiles(count);
      for (index_t j = 0; j < count; ++j) tiles[j] = call.plan.tile(own.group, i + j);
      in_place = {p, tiles.data(), count};
      if (!in_place.columns) stage_columns<C>(p, tiles.data(), count, 0, p.Tk, worker.P, 2 * size);
      if (!in_place.queries && p.gate_fn != gate::none)
        read_tiles<C>(p.q, p.grid, tiles.data(), count, 1, 0, p.Tq, worker.gates, size, L);
    }
    C* const P = worker.P + (in_place.columns ? 0 : in_group * 2 * size);
    const lane_tile<C> tile = call.plan.tile(own.group, i);
    const query_inputs<C> inputs(p, tile);
    const stencil_prefetch ahead(own, i, worker.group, next, p.Tq);
    const query_outputs<C> outputs(p, tile);
    const query_inputs<C> later(p, call.plan.tile(ahead.tiles.group, ahead.tiles.first));
    const far_lanes<C> afar(p, tile);
    column_scales<C> cs;
    fill_ordinary_columns<C>(p, call.tables[i], tile, in_place.columns ? inputs.columns() : column_rows<C>::staged(P),
                             afar, P, cs);
    rest.begin_with(far_column<C>(afar, cs));
    query_fold<C> fold(p, call.shape, call.tables[i], tile, cs, P);
    fold.y = outputs.whole_rows();
    fold.weigh_losses(p.Tk);
    const auto done = [&](index_t t0, index_t t1, const query_block<C>& block) {
      outputs.store_queries(t0, t1, block);
    };
    index_t prefetched = ahead.row;
    const auto prefetch_into = [&](index_t t) {
      ahead.advance(
          t, prefetched, [&](index_t t0, index_t t1) __attribute__((always_inline)) {
            later.prefetch(t0, t1, ahead.tiles.count());
          });
    };
    const gate_inputs<C> gates = in_place.queries ? inputs.gates() : gate_inputs<C>{worker.gates + in_group * size};
    fold_queries<C>(fold, call.wanted, P, gates, rest, *worker.block, done, prefetch_into);
  }
  fence_stores();
}

/// bias_kind::filter without a mask per pair. O(B T taps d) multiply-adds, O(T) scratch per thread and lane tile.
template <class C>
void stencil_forward(const problem& given, const cpu& exec) {
  if (given.B == 0 || given.Tq == 0 || given.d == 0) return;
  scratch memory(exec);
  const stencil_shape shape = shape_of(given);
  problem p = given;
  // The box keeps the grid of its own shape.
  if (is_flat(p, {&p.q, &p.k, &p.v, &p.y, &p.lse, &p.average})) p.grid = {1, 1, p.Tq};
  const channel_head_groups<C> head_groups(p);
  if (goes_by_parts<C>(shape, given.d, head_groups.pays())) return sequence_forward<C>(p, shape, exec, memory);
  const lane_plan<C> plan(p.B, p.d);
  // Pairs of batch elements share denominators where that pays; what is left goes alone, with the same bits.
  const index_t pairs = head_groups.pays() ? p.B / 2 : 0;
  const index_t groups = pairs > 0 ? pairs + p.B % 2 : plan.groups;
  const index_t segments = segment_count(groups, plan.tiles, thread_count(exec));
  const int threads = worker_count(exec, segments * groups);
  const index_t head_group_tiles = pairs > 0 ? head_groups.tiles() : 0;
  stencil_table<C>* tables = nullptr;
  stencil_table<C>* head_group_tables = nullptr;
  stencil_worker<C>* workers = nullptr;
  grouped_worker<C>* grouped_workers = nullptr;
  const auto lay_out = [&](scratch& from) {
    tables = take_tables<C>(shape, plan.tiles, false, from);
    head_group_tables = take_tables<C>(shape, head_group_tiles, false, from);
    workers = take_workers<stencil_worker<C>>(
        from, threads, shape, tile_group<C>(shape.positions(), 4, tuning_stencil<C>::group), pairs > 0 ? 2 : 1);
    grouped_workers = take_workers<grouped_worker<C>>(from, threads, shape, head_group_tiles);
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  parallel_for(plan.tiles, threads, [&](index_t i, int) { fill_table<C>(p, shape, plan.tile(0, i), tables[i]); });
  if (pairs > 0)
    parallel_for(head_group_tiles, threads,
                 [&](index_t i, int) { fill_table<C>(p, shape, head_groups.tile(0, i), head_group_tables[i]); });
  const query_results wanted = p.lse.set ? query_results::logs : query_results::averages;
  const stencil_call<C> call{p, shape, plan, tables, wanted};
  const auto item_at = [&](index_t item) {
    if (item >= segments * groups) return stencil_item{};
    return stencil_item{item / segments, plan.tiles * (item % segments) / segments,
                        plan.tiles * (item % segments + 1) / segments};
  };
  parallel_for(segments * groups, threads, [&](index_t item, int thread) {
    stencil_item own = item_at(item), next = item_at(item + threads);
    if (own.group < pairs) {
      const grouped_fold<C> fold{p, shape, plan, tables, head_groups, head_group_tables, wanted};
      own.group *= 2;
      next.group *= 2;
      fold.run(workers[thread], grouped_workers[thread], own, next);
    } else {
      if (pairs > 0) own.group = p.B - 1;
      forward_tiles<C>(call, workers[thread], own, pairs > 0 ? stencil_item{} : next);
    }
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
