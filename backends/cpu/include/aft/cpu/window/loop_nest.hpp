// SPDX-License-Identifier: Apache-2.0
/// @file window/loop_nest.hpp  The sums of gemm/loop_nest.hpp where a window makes the dense part of every panel short.
///
/// Panel by panel through all lane tiles of a group, so that rows of every array are read and written as they lie in
/// memory and a panel's weights are read from the first-level cache. Of the packed columns only those of a window are
/// kept where a sequence is too long to keep all; the sums after a panel then take a pass of their own.
#pragma once

#include "sliding_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Where finishing a panel leaves its keys for the gradient of the bias: [Y v | -Y], where Y is `scale` times what the
/// panel's sums are multiplied by. NaN: not proven.
template <class C>
struct kept_keys {
  C* to;
  C scale[lanes<C>];
};

/// Finishes the sums of a panel if they need no more than most.
template <class C>
class window_epilogue {
 public:
  /// c are the sums of rows [r0, r1), `outside` those of the constant part; `keys` is null where they are not wanted.
  /// False: not done.
  virtual bool epilogue(index_t i, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                        const uniform_sums<C>& uniform, const C* c, kept_keys<C>* keys) const = 0;

  /// What will be read, and what will be written through the caches.
  const window_lines<C>& reads() const { return reads_; }
  const window_lines<C>& writes() const { return writes_; }

  window_epilogue(const window_epilogue&) = delete;
  window_epilogue& operator=(const window_epilogue&) = delete;

 protected:
  window_epilogue(const window_lines<C>& reads, index_t rows) : reads_(reads), writes_(rows) {}
  ~window_epilogue() = default;

  window_lines<C> reads_, writes_;
};

/// What is made of the keys and columns that a panel has at hand, besides its sums.
template <class C>
class pair_products {
 public:
  /// The scales of an item's columns are known.
  virtual void begin(const fold_item& item, const column_scale<C>* cs) = 0;
  /// Where a panel's keys go.
  virtual kept_keys<C>* keys(const fold_item& item, index_t i, index_t panel) = 0;
  /// All lane tiles of a pair of panels are finished, or of the last one alone.
  virtual void multiply(const fold_item& item, const window_columns<C>& columns, index_t panel) = 0;

  pair_products(const pair_products&) = delete;
  pair_products& operator=(const pair_products&) = delete;

 protected:
  pair_products() = default;
  ~pair_products() = default;
};

/// Takes a sum of a panel that window_epilogue has not finished, as in fold_pairs.
template <class C>
using epilogue_ref =
    function_ref<void(index_t, const column_scale<C>&, index_t, index_t, const row_scale<C>&, const C*, kept_keys<C>*)>;

/// Asks for what finishing tile i will touch of the panel that begins with row r: while a tile of `depth` steps is
/// multiplied, or at once where those are too few. Then it is the weights that are asked for meanwhile. Where there is
/// room for them, the same rows of `coming` are asked for besides.
template <class C>
inline prefetched_lines<C> prefetch_rows(const window_epilogue<C>& quick, const window_lines<C>& upcoming, index_t i,
                                         index_t r, index_t depth, const C* weights) {
  constexpr index_t M = tuning<C>::MR;
  const window_lines<C>&reads = quick.reads(), &writes = quick.writes();
  const index_t own = reads.count() + writes.count(), all = own + upcoming.count();
  prefetched_lines<C> lines = prefetched_lines<C>::of_weights(weights);
  if (own == 0) return lines;
  const index_t shared = ceil_div(depth, all);
  const index_t count = all <= prefetched_lines<C>::most && shared >= M && r + shared <= upcoming.end() ? all : own;
  const index_t length = ceil_div(depth, count);
  if (count > prefetched_lines<C>::most || length < M || r + length > reads.end()) {
    reads.prefetch_into(i, r, r + M);
    writes.prefetch_into(i, r, r + M, true);
    return lines;
  }
  lines.length = length;
  index_t f = 0;
  for (const window_lines<C>* from : {&reads, &writes, &upcoming}) {
    for (index_t j = 0; j < from->count() && f < count; ++j, ++f) {
      lines.first[f] = from->at(j, i, r);
      lines.step[f] = from->step(j);
    }
  }
  return lines;
}

/// The panels of one item. `products` may be null. `coming`: rows of columns that the thread forms after this item; in
/// that time they are brought to the second-level cache, which the item's own leave column by column.
template <class C>
[[gnu::noinline]] inline void fold_window_item(const fold_plan<C>& plan, int thread, const fold_item& item,
                                               window_packer<C>& source, const window_epilogue<C>& quick,
                                               const window_lines<C>& upcoming, pair_products<C>* products,
                                               epilogue_ref<C> epilogue) {
  constexpr index_t N = tuning<C>::NR;
  constexpr index_t M = tuning<C>::MR;
  constexpr index_t depth = tuning<C>::KC;
  const pair_geometry& g = plan.g;
  const index_t panel_size = plan.width * M;
  const C* const weights = plan.weights_of(thread);
  const row_scale<C>* const scales = plan.scales_of(thread);
  window_columns<C> columns(plan, item, source);
  column_scale<C>* const cs = plan.column_scales.of(item.slot);
  columns.prepare(cs);
  if (products != nullptr) products->begin(item, cs);
  C* const c = plan.tiles.of(item.slot);
  uniform_sums<C> uniform;
  for (index_t panel = g.constant && g.causal >= 0 ? 0 : item.first; panel < item.last; ++panel) {
    const index_t r0 = plan.cut.begin(panel);
    const index_t r1 = plan.cut.end(panel);
    const auto span = g.dense(r0, r1);
    const bool own = panel >= item.first;
    columns.enter(span, own);
    if (!own) continue;
    const C* const a = weights + (panel - item.block) * panel_size;
    const row_scale<C>& rs = scales[panel - item.block];
    const tile_edges edges = rs.edges;
    const bool joins = r1 - r0 == M && g.dense(r1, r1 + 1).lo == span.lo + M;
    for (index_t i = 0; i < item.count; ++i) {
      if (!plan.keys_resident) source.lines().prefetch_into(i, span.hi, span.hi + M);
      if (span.lo == span.hi || !plan.sums)
        for (index_t x = 0; x < (r1 - r0) * N; ++x) c[x] = C(0);
      for (index_t k0 = span.lo / depth * depth; plan.sums && k0 < span.hi; k0 += depth) {
        const index_t from = max_of(span.lo, k0);
        const index_t to = span.hi < k0 + depth ? span.hi : k0 + depth;
        const tile_edges here{edges.begin && from == span.lo, edges.end && to == span.hi};
        const index_t skipped_steps = plan.edge_steps * ((here.begin ? 1 : 0) + (here.end ? 1 : 0));  // ask for nothing
        const index_t steps = to - from - skipped_steps;
        const C* const part = a + (from - span.lo) * M;
        const C* const next = i == 0 && panel + 1 < item.last ? part + panel_size : part;
        gemm_panel<C, false>(r1 - r0, to - from, part, columns.at(i, from), c, from > span.lo,
                             from > span.lo ? prefetched_lines<C>::of_weights(next)
                                            : prefetch_rows<C>(quick, upcoming, i, r1, steps, next),
                             here);
      }
      columns.uniform(i, panel, span, edges, joins, uniform);
      kept_keys<C>* const keys = products != nullptr ? products->keys(item, i, panel) : nullptr;
      if (quick.epilogue(i, cs[i], r0, r1, rs, uniform, c, keys)) continue;
      if (g.constant) add_uniform_keys<C>(r1 - r0, rs, uniform, c);
      epilogue(item.tile + i, cs[i], r0, r1, rs, c, keys);
    }
    if (products != nullptr && (panel % plan.pair_step == plan.pair_step - 1 || panel + 1 == item.last))
      products->multiply(item, columns, panel);
  }
}

/// fold_pairs for the plan's windows: `run` calls fold_window_item for an item.
template <class C, class Run>
[[gnu::noinline]] inline void fold_window(const fold_plan<C>& plan, int thread, index_t tiles, fill_ref<C> fill,
                                          const Run& run) {
  for (index_t p0 = 0; p0 < plan.panels; p0 += plan.block) {
    const index_t p1 = min_of(p0 + plan.block, plan.panels);
    pack_weights<C>(plan, thread, p0, p1, fill);
    for_each_item<C>(plan, thread, tiles, p0, p1, run);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
