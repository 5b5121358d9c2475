// SPDX-License-Identifier: Apache-2.0
/// @file gemm/loop_nest.hpp  The tile engine: panels of weights times packed columns, plus the constant blocks beside
/// them.
///
/// For every panel of rows and every lane tile of columns it forms
///     c[r] = sum_{dense s} A[r][s] P[s] + outside[r] (sum of P before the dense part + sum of P after it)
/// where P has two vectors a position. Forward those are exp(k) v and exp(k); transposed exp(-lse) g and exp(-lse) g o.
/// Dense are a panel's columns, or in fold_window those of each group of its rows, see gemm/geometry.hpp. Sums run in
/// the order of s, joined every tuning::KC positions: no result depends on threads, on the batch, or on where
/// a block of rows begins.
#pragma once

#include "../runtime/parallel.hpp"
#include "../softmax/sums.hpp"
#include "blocking.hpp"
#include "microkernel.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// `sum` and n columns, in their order.
template <class C>
inline vec_sum<C> add_columns(const C* columns, index_t n, vec_sum<C> sum) {
  for (index_t s = 0; s < n; ++s) sum = sum + load_sum(columns + s * tuning<C>::NR);
  return sum;
}
/// The same of n pairs of columns.
template <class C>
inline vec_sum<C> add_paired_columns(const C* columns, index_t n, vec_sum<C> sum) {
  if constexpr (has_bf16_dot<C>) {
    const vec<C> one(C(1)), ones = join_pairs(one, one);
    for (index_t s = 0; s < n; ++s) {
      const vec_sum<C> pair = load_sum(columns + s * tuning<C>::NR);
      sum = {add_pairs(ones, pair.num, sum.num), add_pairs(ones, pair.den, sum.den)};
    }
  }
  return sum;
}

/// Sums of P before and after each panel's dense part; those before begin with `more`. Both are sums of their own,
/// forwards and backwards: taking the one from the total would cancel.
template <class C>
inline void sum_uniform_keys(const fold_plan<C>& plan, index_t p0, index_t p1, const C* P, const vec_sum<C>& more,
                             C* before, C* after) {
  constexpr index_t N = tuning<C>::NR;
  const pair_geometry& g = plan.g;
  // A run between two panels' edges is summed apart before it joins the rest, which keeps the rounding of long
  // sequences that of their square root. The runs begin at 0 and at K, so they do not depend on p0 and p1.
  const auto run = [&](index_t from, index_t to) {
    const C* const columns = P + plan.steps(from) * N;
    return plan.paired ? add_paired_columns<C>(columns, plan.steps(to - from), zero_sum<C>())
                       : add_columns<C>(columns, to - from, zero_sum<C>());
  };
  vec_sum<C> sum = more;
  index_t at = 0;
  if (g.causal >= 0) {
    for (index_t panel = 0; panel < p1; ++panel) {
      const index_t lo = plan.cut.dense(g, panel).lo;
      if (lo > at) sum = sum + run(at, lo);
      at = max_of(lo, at);
      if (panel >= p0) store_sum(before + (panel - p0) * N, sum);
    }
  }
  if (g.causal <= 0) {
    sum = zero_sum<C>();
    at = g.K;
    for (index_t panel = plan.panels; panel-- > p0;) {
      const index_t hi = plan.cut.dense(g, panel).hi;
      if (hi < at) sum = sum + run(hi, at);
      at = min_of(hi, at);
      if (panel < p1) store_sum(after + (panel - p0) * N, sum);
    }
  }
}

/// Sums of P outside the dense columns of each band edge of a panel's rows.
template <class C>
class uniform_sums {
 public:
  void set(index_t edge_group, const vec_sum<C>& sum) { store_sum(sums_ + edge_group * tuning<C>::NR, sum); }
  /// take(r, num, den) for each of the rows.
  template <class Take>
  [[gnu::always_inline]] void for_rows(index_t rows, const Take& take) const {
    for (index_t edge_group = 0, r = 0; r < rows; ++edge_group) {
      const vec<C> num = load(sums_ + edge_group * tuning<C>::NR);
      const vec<C> den = load(sums_ + edge_group * tuning<C>::NR + lanes<C>);
      const index_t next = tuning<C>::edge_group(edge_group + 1);
      for (const index_t end = min_of(next, rows); r < end; ++r) take(r, num, den);
    }
  }

 private:
  C sums_[tuning<C>::edge_groups * tuning<C>::NR] = {};
};

/// tile[r] += outside[r] sums, two vectors a row. Outside weights are at most 1.42, so sums that are 0 add nothing.
template <class C>
inline void add_uniform_keys(index_t rows, const row_scale<C>& rs, const uniform_sums<C>& sums, C* tile) {
  sums.for_rows(rows, [&](index_t r, const vec<C>& num, const vec<C>& den) {
    C* const to = tile + r * tuning<C>::NR;
    const vec<C> uniform(rs.uniform[r]);
    store(to, mul_add(uniform, num, load(to)));
    store(to + lanes<C>, mul_add(uniform, den, load(to + lanes<C>)));
  });
}

/// fill(r0, r1, s0, s1, out, ld) gives the log-weights of panels: in `out`, or, in whole vectors, where the caller has
/// them.
template <class C>
using fill_ref = function_ref<log_weights<C>(index_t, index_t, index_t, index_t, C*, index_t)>;

/// pack(slot, tile, n, P, scales) packs the columns of n lane tiles with the buffers of a slot.
template <class C>
using pack_ref = function_ref<void(int, index_t, index_t, C*, column_scale<C>*)>;
/// finish(tile, scale, r0, r1, rows, c) takes the sums of a panel.
template <class C>
using sums_ref = function_ref<void(index_t, const column_scale<C>&, index_t, index_t, const row_scale<C>&, const C*)>;

/// The weights of panels [p0, p1).
template <class C>
[[gnu::noinline]] inline void pack_weights(const fold_plan<C>& plan, int thread, index_t p0, index_t p1,
                                           fill_ref<C> fill) {
  constexpr index_t M = tuning<C>::MR;
  const pair_geometry& g = plan.g;
  const index_t panel_size = plan.steps(plan.width) * M;
  const index_t items = (p1 - p0 + plan.together - 1) / plan.together;
  parallel_for(items, plan.own_weights() ? 1 : plan.threads, [&](index_t item, int own) {
    const index_t first = p0 + item * plan.together;
    const index_t last = min_of(first + plan.together, p1);
    const index_t origin = plan.cut.begin(first), ld = plan.ld();
    const auto all = g.dense(origin, plan.cut.end(last - 1));
    C* const rows = plan.rows_kept ? plan.rows.of(plan.own_weights() ? thread : 0) + (first - p0) * M * ld
                                   : plan.rows.of(plan.own_weights() ? thread : own);
    const log_weights<C> w = fill(origin, plan.cut.end(last - 1), all.lo, all.hi, rows, ld);
    for (index_t panel = first; panel < last; ++panel) {
      const index_t r0 = plan.cut.begin(panel), r1 = plan.cut.end(panel);
      const auto span = g.dense(r0, r1);
      row_scale<C>& scale = plan.scales_of(thread)[panel - p0];
      const tile_edges edges = plan.edges(r0, r1);
      const bool beside =
          g.constant && ((edges.begin && g.causal >= 0) || (edges.end && g.causal <= 0));  // else it is hidden
      const bool uniform = g.has_prefix(span) || g.has_suffix(span) || beside;
      const index_t n = span.hi - span.lo, at = (r0 - origin) * w.ld + span.lo - all.lo;
      if (!w.whole) pad_rows<C>(r1 - r0, n, padded_weights<C>(n, plan.paired), rows + at, ld);
      pack_weight_panel<C>(r1 - r0, n, {w.first + at, w.ld, true}, uniform, plan.paired, plan.units,
                           plan.weights_of(thread) + (panel - p0) * panel_size, scale);
      scale.edges = edges;
      if (plan.rows_kept) scale.kept = {w.first + at, w.ld, r0, span.lo};
    }
  });
}

/// A group of lane tiles and the panels that a thread takes them through.
struct fold_item {
  int slot;  ///< of the plan's buffers
  index_t tile, count, first, last;
  index_t block;        ///< the first panel whose weights are packed
  index_t partial = 0;  ///< that the group belongs to
  bool begins = false;  ///< it is the chain's first
};

/// Hands out panels [p0, p1) of all lane tiles: lane tiles first; rows are divided too when there are fewer groups, or
/// chains of groups, than threads.
template <class C, class Body>
inline void for_each_item(const fold_plan<C>& plan, int thread, index_t tiles, index_t p0, index_t p1,
                          const Body& body) {
  const int team = plan.by_batch_item ? 1 : plan.threads;
  const index_t groups = (tiles + plan.group - 1) / plan.group;
  const index_t units = plan.partials > 0 ? plan.partials : groups;
  const index_t step = plan.products ? plan.pair_step : 1;
  index_t parts = units > 0 && units < team ? ceil_div(team, units) : 1;
  parts = parts > p1 - p0 ? p1 - p0 : parts;
  const auto first_of = [&](index_t unit) { return plan.partials > 0 ? plan.first_group(unit, tiles) : unit; };
  const auto edge = [&](index_t part) { return part < parts ? p0 + (p1 - p0) * part / parts / step * step : p1; };
  parallel_for(units * parts, team, item_order::runs, [&](index_t i, int own) {
    const index_t unit = i / parts;
    const index_t part = i % parts;
    for (index_t group = first_of(unit); group < first_of(unit + 1) && edge(part) < edge(part + 1); ++group) {
      const index_t left = tiles - group * plan.group;
      body(fold_item{plan.by_batch_item ? thread : own, group * plan.group, min_of(left, plan.group), edge(part),
                     edge(part + 1), p0, unit, group == first_of(unit)});
    }
    fence_stores();  // of what was written by streaming stores
  });
}

/// Multiplies the panels of an item with its packed columns P, and finishes them. Columns that come first lie beyond
/// the second-level cache: the next ones are then asked for, at last `next`, which the thread takes afterwards.
template <class C>
[[gnu::noinline]] inline void fold_panels(const fold_plan<C>& plan, const fold_item& item, const C* P, const C* next,
                                          const column_scale<C>* cs, sums_ref<C> epilogue) {
  constexpr index_t N = tuning<C>::NR;
  constexpr index_t M = tuning<C>::MR;
  const pair_geometry& g = plan.g;
  const row_panels& cut = plan.cut;
  const index_t depth = tuning<C>::KC * (plan.paired ? 2 : 1);
  const index_t panel_size = plan.steps(plan.width) * M;
  const index_t column_size = plan.column_size;
  const int slot = item.slot;
  const index_t tile0 = item.tile, in_group = item.count, a0 = item.first, a1 = item.last, p0 = item.block;
  const C* const weights = plan.weights_of(slot);
  const row_scale<C>* const scales = plan.scales_of(slot);
  C* const c = plan.tiles.of(slot);
  C* const before = g.constant ? plan.before.of(slot) : nullptr;
  C* const after = g.constant ? plan.after.of(slot) : nullptr;
  for (index_t i = 0; g.constant && i < in_group; ++i) {
    sum_uniform_keys<C>(plan, a0, a1, P + i * plan.column_size, g.more ? load_sum(cs[i].more) : zero_sum<C>(),
                        before + i * plan.block * N, after + i * plan.block * N);
  }
  for (index_t s0 = a0; s0 < a1; s0 += plan.MC_panels) {
    const index_t s1 = min_of(s0 + plan.MC_panels, a1);
    const auto first = cut.dense(g, s0);
    const auto last = cut.dense(g, s1 - 1);
    const index_t start = first.lo / depth * depth;
    for (index_t k0 = start; k0 < last.hi; k0 += depth) {
      const bool more = k0 + depth < last.hi;
      const C* const upcoming = (more ? P : next) + plan.steps(more ? k0 + depth : start) * N;
      for (index_t panel = s0; panel < s1; ++panel) {
        const auto span = cut.dense(g, panel);
        const index_t from = max_of(span.lo, k0);
        const index_t to = span.hi < k0 + depth ? span.hi : k0 + depth;
        if (from >= to) continue;
        const C* const a = weights + (panel - p0) * panel_size + plan.steps(from - span.lo) * M;
        const C* const following = panel + 1 < s1 ? a + panel_size : a;
        const index_t r0 = cut.begin(panel), r1 = cut.end(panel);
        const tile_edges whole = scales[panel - p0].edges;
        const tile_edges edges{whole.begin && from == span.lo, whole.end && to == span.hi};
        for (index_t i = 0; i < in_group; ++i) {
          const C* const columns = P + i * column_size + plan.steps(from) * N;
          C* const tile = c + ((panel - s0) * plan.group + i) * M * N;
          auto prefetch_into = prefetched_lines<C>::of_weights(i == 0 ? following : a);
          if (plan.order == loop_order::keys_first && i > 0) {
            // A part of the columns for each tile that need not ask for weights.
            constexpr index_t line = prefetched_lines<C>::line, parts = N > line ? N / line : 1;
            const index_t part = (panel - a0) * (in_group - 1) + i - 1, of = part / parts;
            if (of < in_group)
              prefetch_into =
                  prefetched_lines<C>::from(upcoming + of * column_size + part % parts * plan.steps(depth) * line);
          }
          if constexpr (has_bf16_dot<C>) {
            if (plan.paired) {
              gemm_panel<C, true>(r1 - r0, plan.steps(to - from), a, columns, tile, from > span.lo, prefetch_into);
              continue;
            }
          }
          gemm_panel<C, false>(r1 - r0, to - from, a, columns, tile, from > span.lo, prefetch_into, edges);
        }
      }
    }
    for (index_t panel = s0; panel < s1; ++panel) {
      const index_t r0 = cut.begin(panel);
      const index_t r1 = cut.end(panel);
      const auto span = g.dense(r0, r1);
      const row_scale<C>& rs = scales[panel - p0];
      for (index_t i = 0; i < in_group; ++i) {
        C* const tile = c + ((panel - s0) * plan.group + i) * M * N;
        if (span.lo == span.hi)
          for (index_t x = 0; x < (r1 - r0) * N; ++x) tile[x] = C(0);
        if (g.has_prefix(span) || g.has_suffix(span)) {
          const index_t at = (i * plan.block + panel - a0) * N;
          uniform_sums<C> sums;
          vec_sum<C> sum = zero_sum<C>();
          if (g.has_prefix(span)) sum = load_sum(before + at);
          if (g.has_suffix(span)) sum = sum + load_sum(after + at);
          for (index_t edge_group = 0; edge_group < tuning<C>::edge_groups; ++edge_group) sums.set(edge_group, sum);
          add_uniform_keys<C>(r1 - r0, rs, sums, tile);
        }
        epilogue(tile0 + i, cs[i], r0, r1, rs, tile);
      }
    }
  }
}

/// fold_pairs where all columns come first: then a thread packs the weights of a few panels and takes them through all.
template <class C>
inline void fold_keys_first(const fold_plan<C>& plan, int thread, index_t tiles, fill_ref<C> fill, pack_ref<C> pack,
                            sums_ref<C> epilogue) {
  const int team = plan.by_batch_item ? 1 : plan.threads;
  const int own_team = plan.by_batch_item ? thread : 0;
  C* const P = plan.columns.of(own_team);
  column_scale<C>* const cs = plan.column_scales.of(own_team);
  const auto slot_of = [&](int own) { return plan.by_batch_item ? thread : own; };
  parallel_for((tiles + plan.pack_group - 1) / plan.pack_group, team, [&](index_t i, int own) {
    const index_t tile = i * plan.pack_group, left = tiles - tile;
    pack(slot_of(own), tile, min_of(left, plan.pack_group), P + tile * plan.column_size, cs + tile);
  });
  const index_t blocks = (plan.panels + plan.block - 1) / plan.block;
  parallel_for(blocks, team, [&](index_t i, int own) {
    // The longest rows come first, so that threads end together.
    const index_t p0 = (plan.g.causal > 0 ? blocks - 1 - i : i) * plan.block;
    const index_t p1 = min_of(p0 + plan.block, plan.panels);
    pack_weights<C>(plan, slot_of(own), p0, p1, fill);
    for (index_t tile = 0; tile < tiles; tile += plan.group) {
      const bool last = tile + plan.group >= tiles;
      const fold_item item{.slot = slot_of(own),
                           .tile = tile,
                           .count = last ? tiles - tile : plan.group,
                           .first = p0,
                           .last = p1,
                           .block = p0};
      const C* const next = last ? P : P + (tile + plan.group) * plan.column_size;
      fold_panels<C>(plan, item, P + tile * plan.column_size, next, cs + tile, epilogue);
    }
    fence_stores();
  });
}

/// Runs one batch item. `thread` is the caller's slot of the plan's buffers when the plan runs by batch item, else 0.
template <class C>
[[gnu::noinline]] inline void fold_pairs(const fold_plan<C>& plan, int thread, index_t tiles, fill_ref<C> fill,
                                         pack_ref<C> pack, sums_ref<C> epilogue) {
  if (plan.order == loop_order::keys_first) return fold_keys_first<C>(plan, thread, tiles, fill, pack, epilogue);
  for (index_t p0 = 0; p0 < plan.panels; p0 += plan.block) {
    const index_t p1 = min_of(p0 + plan.block, plan.panels);
    pack_weights<C>(plan, thread, p0, p1, fill);
    for_each_item<C>(plan, thread, tiles, p0, p1, [&](const fold_item& item) {
      C* const P = plan.columns.of(item.slot);
      column_scale<C>* const cs = plan.column_scales.of(item.slot);
      pack(item.slot, item.tile, item.count, P, cs);
      fold_panels<C>(plan, item, P, P, cs, epilogue);
    });
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
