// SPDX-License-Identifier: Apache-2.0
/// @file stencil/grouped/forward.hpp  Channels that share key and filter have one denominator: AFT-conv with keys
/// grouped to heads.
#pragma once

#include "../../runtime/inplace_vector.hpp"
#include "../store.hpp"
#include "../worker.hpp"
#include "groups.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// What a thread holds besides: of every class the weights of keys and the denominators, [class tile][t][batch][lane].
template <class C>
struct grouped_worker {
  C* keys = nullptr;
  C* dens = nullptr;
  column_scales<C>* scales = nullptr;  ///< [class tile][batch]
  C* sums = nullptr;

  void take(const stencil_shape& shape, index_t head_group_tiles, scratch& memory) {
    const index_t size = head_group_tiles * shape.positions() * 2 * lanes<C>;
    keys = memory.take<C>(size);
    dens = memory.take<C>(size);
    scales = memory.take<column_scales<C>>(head_group_tiles * 2);
    sums = memory.take<C>(head_group_tiles > 0 ? query_block<C>::most * 2 * lanes<C> : 0);
  }
};

/// Two batch elements b and b + 1 at a time.
template <class C>
struct grouped_fold {
  static constexpr index_t L = lanes<C>;
  const problem& p;
  const stencil_shape& shape;
  const lane_plan<C>& plan;
  const stencil_table<C>* tables;
  const channel_head_groups<C>& head_groups;
  const stencil_table<C>* head_group_tables;
  query_results wanted;

  /// The item's lane tiles, with the denominators of their classes only. A group is the first of its batch elements.
  void run(const stencil_worker<C>& worker, const grouped_worker<C>& grouped, const stencil_item& own,
           const stencil_item& next) const {
    const index_t b = own.group, first = own.first, last = own.last;
    const index_t step = p.Tk * 2 * L;
    const index_t head_group_first = first * L / head_groups.size / L;
    const index_t end = last * L < p.d ? last * L : p.d;
    const index_t head_group_last = ((end - 1) / head_groups.size) / L + 1;
    box_complement<C> rest(shape, worker.rest);
    for (index_t i = head_group_first; i < head_group_last; ++i) {
      C* const keys = grouped.keys + (i - head_group_first) * step;
      C* const dens = grouped.dens + (i - head_group_first) * step;
      for (index_t x = 0; x < 2; ++x)
        stage_head_group_keys<C>(p, head_groups.tile(b + x, i), head_group_tables[i], true, keys + x * L,
                                 grouped.scales[(i - head_group_first) * 2 + x]);
      fold_grid<C>(shape, head_group_tables[i].weights, head_group_tables[i].outside, keys, rest, grouped.sums,
                   query_block<C>::most, [&](index_t t0, index_t t1) {
                     for (index_t at = 0; at < (t1 - t0) * 2 * L; at += L)
                       store(dens + t0 * 2 * L + at, load(grouped.sums + at));
                   });
    }
    const index_t group = worker.group;
    tiles_in_place<C> in_place;
    for (index_t i = first; i < last; ++i) {
      const index_t in_group = (i - first) % group;
      if (in_group == 0) in_place = read_group(worker, b, i, own.some(i, group).last);
      values(worker, grouped, b, i, in_group, in_place, stencil_prefetch(own, i, group, next, p.Tq),
             head_group_first * L, rest);
    }
    fence_stores();
  }

 private:
  /// v and q of lane tiles [first, last) to where they are worked on, unless they may stay where they are.
  tiles_in_place<C> read_group(const stencil_worker<C>& worker, index_t b, index_t first, index_t last) const {
    const index_t size = p.Tk * L;
    tiles_in_place<C> both;
    for (index_t x = 0; x < 2; ++x) {
      inplace_vector<lane_tile<C>, tuning_stencil<C>::group> tiles(last - first);
      for (index_t i = first; i < last; ++i) tiles[i - first] = plan.tile(b + x, i);
      // Tiles of both batch elements have the same lanes in use.
      both = tiles_in_place<C>(p, tiles.data(), last - first);
      if (!both.values)
        read_tiles<C>(p.v, p.grid, tiles.data(), last - first, 1, 0, p.Tk, worker.P + x * L, 2 * size, 2 * L);
      if (!both.queries && p.gate_fn != gate::none)
        read_tiles<C>(p.q, p.grid, tiles.data(), last - first, 1, 0, p.Tq, worker.gates + x * size, 2 * size, L);
    }
    return both;
  }

  /// Lane tile i, the `in_group`-th that was read together.
  void values(const stencil_worker<C>& worker, const grouped_worker<C>& grouped, index_t b, index_t i, index_t in_group,
              const tiles_in_place<C>& in_place, const stencil_prefetch& ahead, index_t head_group0,
              box_complement<C>& rest) const {
    const index_t step = p.Tk * 2 * L;
    const lane_tile<C> tiles[2] = {plan.tile(b, i), plan.tile(b + 1, i)};
    const lane_spread<C> spread(tiles[0], head_groups.size, head_group0, step);
    const query_outputs<C> outputs[2] = {{p, tiles[0]}, {p, tiles[1]}};
    const stencil_item& then = ahead.tiles;
    const index_t partner = then.group + 1 < p.B ? then.group + 1 : then.group;
    const query_inputs<C> later[2] = {{p, plan.tile(then.group, then.first)}, {p, plan.tile(partner, then.first)}};
    const query_inputs<C> inputs[2] = {{p, tiles[0]}, {p, tiles[1]}};
    C* const P = worker.P + (in_place.values ? 0 : in_group * step);
    column_scales<C> cs[2];
    gate_inputs<C> gates[2];
    for (index_t x = 0; x < 2; ++x) {
      gates[x] = in_place.queries ? inputs[x].gates() : gate_inputs<C>{worker.gates + in_group * step + x * p.Tq * L};
      const C* const v = in_place.values ? inputs[x].v.row(0) : P + x * L;
      const index_t v_step = in_place.values ? inputs[x].v.step() : 2 * L;
      const auto stage = [&](lane_scaling scaling) {
        return stage_values<C>(p, spread, grouped.scales + x, 2, grouped.keys + x * L, scaling, v, v_step, P + x * L,
                               cs[x]);
      };
      if (stage(lane_scaling::one)) continue;
      if (!in_place.values) inputs[x].v.read(0, p.Tk, P + x * L, C(0), 2 * L);
      stage(lane_scaling::usual);
    }
    query_fold<C> folds[2] = {{p, shape, tables[i], tiles[0], cs[0], P}, {p, shape, tables[i], tiles[1], cs[1], P}};
    for (index_t x = 0; x < 2; ++x) {
      folds[x].y = outputs[x].whole_rows();
      for (index_t l = 0; l < L; ++l) folds[x].hidden_flags[l] = grouped.keys + x * L + spread.at[l];
      if (tables[i].any_sharp) folds[x].weigh_losses(p.Tk);
    }
    query_block<C>& block = *worker.block;
    fold_grid<C>(shape, tables[i].weights, tables[i].outside, P, rest, grouped.sums, query_block<C>::most,
                 [&](index_t t0, index_t t1) {
                   for (index_t x = 0; x < 2; ++x) {
                     const C* const nums = grouped.sums + x * L;
                     const C* const dens = grouped.dens + t0 * 2 * L + x * L;
                     folds[x].epilogue(
                         t0, t1, wanted, [&](index_t j) { return load(nums + j * 2 * L); },
                         [&](index_t j) { return spread(dens + j * 2 * L); }, gates[x].from(t0), block);
                     outputs[x].store_queries(t0, t1, block);
                     later[x].prefetch(ahead.at(t0), ahead.at(t1), then.count());
                   }
                 });
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
