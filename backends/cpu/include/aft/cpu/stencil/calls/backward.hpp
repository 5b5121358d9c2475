// SPDX-License-Identifier: Apache-2.0
/// @file stencil/calls/backward.hpp  Gradients of a convolution: the forward fold with time transposed, and a
/// correlation.
#pragma once

#include "../../runtime/parallel.hpp"
#include "../../tensor/reduce_shared_keys.hpp"
#include "../../tensor/visible_keys.hpp"
#include "grouped_backward.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
struct gradient_worker {
  stencil_worker<C> forward;
  incoming_rows<C> rows;
  C* Q = nullptr;

  void take(const stencil_shape& shape, scratch& memory) {
    forward.take(shape, 1, 0, memory);
    rows.take(shape.positions(), memory);
    Q = memory.take<C>(shape.positions() * 2 * lanes<C>);
  }
};

/// One lane tile of one group of batch elements, its incoming and payload in place.
template <class C>
struct key_gradients {
  const backward_problem& p;
  const stencil_shape& back;  ///< transposed
  const stencil_table<C>& table;
  const lane_tile<C>& tile;
  const column_scales<C>& cs;
  const payload_scales<C>& ps;
  const incoming_rows<C>& rows;
  const gradient_fields<C>& fields;
  const lane_rows<C>& dv_rows;
  const lane_rows<C>& dk_rows;
  bool dk_set;

  /// block.sums hold A = sum_t e^w X g and B = sum_t e^w X g o of keys [s0, s1): dv = e^k A, dk = e^k (v A - B).
  [[gnu::flatten]] void epilogue(index_t s0, index_t s1, query_block<C>& block) const {
    constexpr index_t L = lanes<C>;
    constexpr C inf = std::numeric_limits<C>::infinity();
    C* const k = block.lse;
    C* const v = block.average;
    fields.k.read(s0, s1, k, -inf);
    fields.v.read(s0, s1, v);
    hide_keys(p, tile, s0, s1, k);
    const vec<C> zero(C(0)), one(C(1)), inverse_scale = load(ps.inverse_scale),
                                        value_inverse_scale = load(cs.inverse_scale);
    const vec<C> exponents = load(table.exponent) + load(ps.exponent), by = load(cs.scale);
    const auto usable = load(ps.usable) == one;
    const vec<C> kept = kept_sum<C>(p.Tq);
    for (index_t i = 0; i < s1 - s0; ++i) {
      const vec<C> key = load(k + i * L);
      const vec<C> value = load(v + i * L);
      const auto hidden = key == vec<C>(-inf);  // idle lanes too
      const scaled_factor<C> e(key, exponents, exp_constants<C>::range);
      const vec<C> A = load(block.sums + i * 2 * L);
      const vec<C> B = load(block.sums + i * 2 * L + L);
      vec<C> dv = e.times(A, inverse_scale, one);
      const vec<C> vA = (value * by) * A;
      vec<C> dk_lane = e.times(vA - B, inverse_scale, value_inverse_scale);
      const vec<C> terms = (xsimd::abs)(vA) + (xsimd::abs)(B);
      const auto keeps = e.keeps((xsimd::abs)(A), kept) && e.keeps(terms, kept + kept);
      auto proven = hidden || (usable && keeps && is_finite<C>(dv) && is_finite<C>(dk_lane));
      if (table.any_sharp) {
        const vec<C> lost = load(ps.lost);
        proven = proven && (hidden || (e.keeps((xsimd::abs)(A), kept, lost) && e.keeps(terms, kept + kept, lost)));
      }
      dv = xsimd::select(hidden, zero, dv);
      dk_lane = xsimd::select(hidden, zero, dk_lane);
      if (!xsimd::all(proven)) {
        C dv_exact[L], dk_exact[L];
        exact_stencil_key<C>(back, table.logs, rows, s0 + i, key, value, dv_exact, dk_exact);
        dv = xsimd::select(proven, dv, load(dv_exact));
        dk_lane = xsimd::select(proven, dk_lane, load(dk_exact));
      }
      store(v + i * L, dv);
      store(k + i * L, dk_lane);
    }
    if (p.dv.set) dv_rows.write(p, s0, s1, v);
    if (dk_set) dk_rows.write(p, s0, s1, k);
  }
};

/// Every gradient of the problem that is set, for bias_kind::filter without a mask per pair. As many multiply-adds
/// as the forward call for dk and dv together, and as many again for dr and for a forward fold that was not saved.
/// Half of that where channels share keys and lse and average were saved.
template <class C>
void stencil_backward(const backward_problem& call, const cpu& exec) {
  scratch memory(exec);
  const stencil_shape shape = shape_of(call);
  const stencil_shape back = shape.transposed();
  backward_problem p = call;
  // The box keeps the grid of its own shape.
  if (is_flat(p, {&p.q, &p.k, &p.v, &p.lse, &p.average, &p.dy, &p.dq, &p.dk, &p.dv})) p.grid = {1, 1, p.Tq};
  if (p.B > 0 && p.Tq > 0 && p.d > 0) {
    const channel_head_groups<C> head_groups(p);
    if (groups_gradients<C>(p, head_groups))
      return stencil_grouped_backward<C>(p, shape, lane_plan<C>(p.B, p.d), head_groups, exec, memory);
  }
  const bool filter_wanted = p.dbias.kind != bias_kind::none;
  const bool keys_wanted = p.dk.set || p.dv.set;
  const bool saved = p.lse.set && p.average.set;
  const lane_plan<C> plan(p.B, p.d);
  const bool work = p.B > 0 && p.Tq > 0 && p.d > 0;
  const index_t parts =
      filter_wanted && plan.groups > tuning_stencil<C>::batch_parts ? tuning_stencil<C>::batch_parts : plan.groups;
  const index_t segments = work ? segment_count(parts, plan.tiles, thread_count(exec)) : 1;
  const index_t items = work ? segments * parts : 0;
  const int threads = worker_count(exec, items);
  // Six inputs; two batch elements of them where channels share keys.
  const index_t together = tile_group<C>(p.Tq, 6, tuning_stencil<C>::prefetched);
  const index_t table_size = shape.tap_count() * lanes<C>;
  const bool shared = work && p.dk.set && p.hk != p.d;
  stencil_table<C>* tables = nullptr;
  gradient_worker<C>* workers = nullptr;
  C* partials = nullptr;
  field dk = p.dk;
  const auto lay_out = [&](scratch& from) {
    tables = take_tables<C>(shape, plan.tiles, true, from);
    workers = take_workers<gradient_worker<C>>(from, threads, shape);
    partials = from.take<C>(filter_wanted && work ? parts * plan.tiles * table_size : 0);
    if (shared) dk = scratch_field<C>(from, p.B, p.Tk, p.d);
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  const std::array<index_t, 3> dk_grid = shared ? std::array<index_t, 3>{1, 1, p.Tk} : p.grid;

  if (work)
    parallel_for(plan.tiles, threads, [&](index_t i, int) { fill_table<C>(p, shape, plan.tile(0, i), tables[i]); });
  parallel_for(items, threads, [&](index_t item, int thread) {
    const gradient_worker<C>& worker = workers[thread];
    query_block<C>& block = *worker.forward.block;
    const index_t part = item / segments;
    const index_t first = plan.tiles * (item % segments) / segments;
    const index_t last = plan.tiles * (item % segments + 1) / segments;
    const index_t group_end = plan.groups * (part + 1) / parts;
    C* const partial = partials + part * plan.tiles * table_size;
    if (filter_wanted)
      for (index_t i = first * table_size; i < last * table_size; ++i) partial[i] = C(0);
    box_complement<C> rest(shape, worker.forward.rest);
    box_complement<C> back_rest(back, worker.forward.rest);
    for (index_t group = plan.groups * part / parts; group < group_end; ++group) {
      const stencil_item next_group = group + 1 < group_end ? stencil_item{group + 1, first, last} : stencil_item{};
      for (index_t i = first; i < last; ++i) {
        const lane_tile<C> tile = plan.tile(group, i);
        const stencil_table<C>& table = tables[i];
        const gradient_fields<C> fields(p, tile);
        const stencil_prefetch ahead({group, first, last}, i, together, next_group, p.Tq);
        const gradient_fields<C> next(p, plan.tile(ahead.tiles.group, ahead.tiles.first));
        const far_lanes<C> afar(p, tile);
        column_scales<C> cs;
        const bool in_place = !hides_keys(p) && fields.k.whole() && fields.v.whole();
        C* const P = worker.forward.P;
        if (!in_place) stage_columns<C>(p, &tile, 1, 0, p.Tk, P, 0);
        fill_columns<C>(p, table, in_place ? fields.columns() : column_rows<C>::staged(P), afar, lane_scaling::own,
                        vec<C>(C(1)), P, cs);
        if (!saved) {
          rest.begin_with(far_column<C>(afar, cs));
          query_fold<C> fold(p, shape, table, tile, cs, worker.forward.P);
          fold.weigh_losses(p.Tk);
          recompute<C>(fold, worker.forward.P, rest, block, worker.rows);
        }
        for (index_t t0 = 0; t0 < p.Tq; t0 += query_block<C>::most) {
          const index_t t1 = min_of(t0 + query_block<C>::most, p.Tq);
          if (saved) read_saved<C>(fields, worker.rows, t0, t1);
          fill_incoming<C>(fields, block, worker.rows, t0, t1);
        }
        if (p.afar.slope != nullptr && p.afar.joins_rows()) {
          far_row_sums<C> sums(p, tile);
          sums.add(worker.rows, 0, p.Tq);
          sums.write(p, tile);
        }
        if (!keys_wanted && !filter_wanted) continue;
        payload_scales<C> ps;
        fill_payload<C>(p, table, worker.rows, cs, worker.forward.P, worker.Q, ps);
        if (keys_wanted) {
          const lane_rows<C> dv_rows(p.dv, p.grid, tile, 1), dk_rows(dk, dk_grid, tile, 1);
          const key_gradients<C> keys{p, back, table, tile, cs, ps, worker.rows, fields, dv_rows, dk_rows, dk.set};
          fold_grid<C>(back, table.flipped, table.outside, worker.Q, back_rest, block.sums, query_block<C>::most,
                       [&](index_t s0, index_t s1) {
                         keys.epilogue(s0, s1, block);
                         next.prefetch(ahead.at(s0), ahead.at(s1), ahead.tiles.count());
                       });
        }
        if (filter_wanted)
          add_filter_gradient<C>(p, shape, tile, table, cs, ps, worker.rows, worker.forward.P, worker.Q, block.sums,
                                 partial + i * table_size);
      }
    }
    fence_stores();
  });
  if (shared) sum_shared_keys<C>(p, dk, exec);
  if (filter_wanted) join_filter_gradient<C>(p, shape, plan, work ? parts : 0, partials, exec);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
