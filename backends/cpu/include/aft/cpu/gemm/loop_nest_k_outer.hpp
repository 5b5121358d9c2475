// SPDX-License-Identifier: Apache-2.0
/// @file gemm/loop_nest_k_outer.hpp  The tile engine for long sequences in memory that does not grow with them.
///
/// The sums of a chunk of rows and of the lane tiles of one pass stay in the caches while the columns go by in outer
/// blocks of keys of a depth block. A outer block of keys is formed when it is used and again for the next chunk;
/// weights are packed for one outer block of keys of a few panels, and again for the next pass. Sums are joined where
/// fold_panels joins them, so the bits are the same.
#pragma once

#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// measure(tile, n, scales) finds the scales of n lane tiles.
template <class C>
using measure_ref = function_ref<void(index_t, index_t, column_scale<C>*)>;
/// form(tile, n, s0, s1, P, scales) packs columns [s0, s1) of n lane tiles.
template <class C>
using form_ref = function_ref<void(index_t, index_t, index_t, index_t, C*, const column_scale<C>*)>;

/// stored(r0, s0, s1) gives log-weights [s0, s1) of the rows from r0 on where the caller has them in whole vectors;
/// else nothing.
template <class C>
using stored_ref = function_ref<log_weights<C>(index_t, index_t, index_t)>;

template <class C>
class k_outer_nest {
 public:
  static constexpr index_t M = tuning<C>::MR;
  static constexpr index_t N = tuning<C>::NR;

  k_outer_nest(const fold_plan<C>& plan, index_t tiles, fill_ref<C> fill, stored_ref<C> stored, form_ref<C> form,
               sums_ref<C> epilogue)
      : plan_(&plan), tiles_(tiles), fill_(fill), stored_(stored), form_(form), epilogue_(epilogue) {}

  void run(measure_ref<C> measure) {
    const fold_plan<C>& plan = *plan_;
    const index_t groups = (tiles_ + plan.pack_group - 1) / plan.pack_group;
    parallel_for(groups, plan.threads, [&](index_t i, int) {
      const index_t tile = i * plan.pack_group, left = tiles_ - tile;
      measure(tile, min_of(left, plan.pack_group), plan.column_scales.first + tile);
    });
    for (index_t p0 = 0; p0 < plan.panels; p0 += plan.chunk) run_chunk(p0, min_of(p0 + plan.chunk, plan.panels));
  }

 private:
  /// Of the panels and lane tiles of a chunk's pass the columns [k0, k1), which are packed.
  struct outer_block {
    index_t first, tile, count, k0, k1;
  };

  void run_chunk(index_t p0, index_t p1) {
    const fold_plan<C>& plan = *plan_;
    const index_t parts = (p1 - p0 + plan.block - 1) / plan.block;
    const auto edge = [&](index_t part) { return min_of(p0 + part * plan.block, p1); };
    parallel_for(parts, plan.threads,
                 [&](index_t part, int slot) { scale_rows(slot, p0, edge(part), edge(part + 1)); });
    const index_t keys = plan.cut.dense(plan.g, p1 - 1).hi;
    for (index_t tile = 0; tile < tiles_; tile += plan.pass) {
      const index_t count = min_of(plan.pass, tiles_ - tile);
      for (index_t k0 = 0; k0 < keys; k0 += plan.width) {
        const outer_block s{
            .first = p0, .tile = tile, .count = count, .k0 = k0, .k1 = min_of(k0 + plan.width, plan.g.K)};
        parallel_for((count + plan.pack_group - 1) / plan.pack_group, plan.threads, [&](index_t i, int) {
          const index_t at = i * plan.pack_group;
          form_(tile + at, min_of(plan.pack_group, count - at), s.k0, s.k1, plan.columns.first + at * plan.column_size,
                plan.column_scales.first + tile + at);
        });
        parallel_for(parts, plan.threads, [&](index_t part, int slot) {
          // The thread's next one, whose weights are asked for meanwhile.
          const index_t next = part + plan.threads;
          multiply(s, edge(part), edge(part + 1), next < parts ? edge(next) : plan.panels, slot);
        });
      }
    }
  }

  /// The log-weights of a panel's columns [from, to).
  log_weights<C> weights(int slot, index_t panel, index_t from, index_t to) const {
    const fold_plan<C>& plan = *plan_;
    const index_t r0 = plan.cut.begin(panel), r1 = plan.cut.end(panel), ld = plan.ld(), n = to - from;
    C* const rows = plan.rows.of(slot);
    const log_weights<C> w = fill_(r0, r1, from, to, rows, ld);
    if (!w.whole) pad_rows<C>(r1 - r0, n, padded_weights<C>(n, plan.paired), rows, ld);
    return {w.first, w.ld, true};
  }

  /// The scales of panels [a0, a1). Outer blocks of keys go around a few panels, so that the factors of weights that
  /// are formed from some are at hand for all of these.
  void scale_rows(int slot, index_t p0, index_t a0, index_t a1) const {
    constexpr index_t together = 8;  // their tops lie on the stack
    const fold_plan<C>& plan = *plan_;
    for (index_t first = a0; first < a1; first += together) {
      const index_t last = min_of(first + together, a1), keys = plan.cut.dense(plan.g, last - 1).hi;
      row_tops<C> tops[together];
      for (index_t k0 = 0; k0 < keys; k0 += plan.width)
        for (index_t panel = first; panel < last; ++panel) join_tops(slot, panel, k0, tops[panel - first]);
      for (index_t panel = first; panel < last; ++panel) {
        const index_t r0 = plan.cut.begin(panel), r1 = plan.cut.end(panel);
        row_scale<C>& scale = plan.scales.first[panel - p0];
        set_row_scale<C>(r1 - r0, tops[panel - first], false, plan.units, scale);
        scale.edges = plan.edges(r0, r1);
      }
    }
  }

  /// The outer block of keys from k0 on.
  void join_tops(int slot, index_t panel, index_t k0, row_tops<C>& tops) const {
    const fold_plan<C>& plan = *plan_;
    const pair_geometry::span span = plan.cut.dense(plan.g, panel);
    const index_t r0 = plan.cut.begin(panel), rows = plan.cut.end(panel) - r0, k1 = min_of(k0 + plan.width, span.hi);
    // Rows as long as they are, where the caller has them: memory is read faster so.
    const log_weights<C> whole = stored_(r0, 0, span.hi);
    if (k0 >= k1 || (whole.first != nullptr && k0 > 0)) return;
    const vec<C> none(-std::numeric_limits<C>::infinity());
    row_tops<C> of_outer_block;
    if (whole.first != nullptr) {
      find_tops<C>(rows, span.hi, whole, none, of_outer_block.top);
    } else {
      find_tops<C>(rows, padded_weights<C>(k1 - k0, plan.paired), weights(slot, panel, k0, k1), none,
                   of_outer_block.top);
    }
    tops.join(of_outer_block);
  }

  /// Panels [a0, a1) times a outer block of keys; finishes those that have no more columns. The weights of as many
  /// panels from `next` on are asked for.
  void multiply(const outer_block& s, index_t a0, index_t a1, index_t next, int slot) const {
    const fold_plan<C>& plan = *plan_;
    C* const packed = plan.weights_of(slot);
    const index_t panel_size = plan.steps(plan.width) * M;
    const auto part_of = [&](index_t panel) {
      const pair_geometry::span span = plan.cut.dense(plan.g, panel);
      return pair_geometry::span{s.k0, min_of(span.hi, s.k1)};
    };
    for (index_t panel = a0; panel < a1; ++panel) {
      const pair_geometry::span part = part_of(panel);
      if (part.lo >= part.hi) continue;
      pack_weight_part<C>(plan.cut.end(panel) - plan.cut.begin(panel), part.hi - part.lo,
                          weights(slot, panel, part.lo, part.hi), plan.paired, packed + (panel - a0) * panel_size,
                          plan.scales.first[panel - s.first]);
    }
    const upcoming_lines upcoming(*this, s, next);
    index_t calls = 0;
    for (index_t tile = 0; tile < s.count; tile += plan.group) {
      const index_t count = min_of(plan.group, s.count - tile);
      for (index_t panel = a0; panel < a1; ++panel) {
        const pair_geometry::span part = part_of(panel);
        if (part.lo >= part.hi) continue;
        const index_t r0 = plan.cut.begin(panel), r1 = plan.cut.end(panel);
        const row_scale<C>& scale = plan.scales.first[panel - s.first];
        const bool last = part.hi == plan.cut.dense(plan.g, panel).hi;
        const tile_edges edges{scale.edges.begin && s.k0 == 0, scale.edges.end && last};
        const C* const a = packed + (panel - a0) * panel_size;
        for (index_t i = tile; i < tile + count; ++i) {
          const C* const columns = plan.columns.first + i * plan.column_size;
          C* const sums = plan.tiles.first + ((panel - s.first) * plan.pass + i) * M * N;
          multiply_tile(r1 - r0, plan.steps(part.hi - part.lo), a, columns, sums, s.k0 > 0, upcoming.at(calls++, sums),
                        edges);
          if (last) epilogue_(s.tile + i, plan.column_scales.first[s.tile + i], r0, r1, scale, sums);
        }
      }
    }
    fence_stores();
  }

  void multiply_tile(index_t rows, index_t steps, const C* a, const C* columns, C* sums, bool add,
                     const prefetched_lines<C>& prefetch_into, tile_edges edges) const {
    if constexpr (has_bf16_dot<C>) {
      if (plan_->paired) return gemm_panel<C, true>(rows, steps, a, columns, sums, add, prefetch_into);
    }
    gemm_panel<C, false>(rows, steps, a, columns, sums, add, prefetch_into, edges);
  }

  /// What is asked for while tiles are multiplied: their sums, which lie in the third-level cache, and rows of the
  /// log-weights that are packed next, three for each tile.
  class upcoming_lines {
   public:
    upcoming_lines(const k_outer_nest& fold, const outer_block& s, index_t panel) {
      const fold_plan<C>& plan = *fold.plan_;
      if (panel >= plan.panels) return;
      const index_t r0 = plan.cut.begin(panel);
      step_ = plan.width / length;
      rows_ = fold.stored_(r0, s.k0, s.k1);
      if (rows_.first != nullptr) end_ = plan.cut.rows - r0;
    }
    prefetched_lines<C> at(index_t call, const C* sums) const {
      prefetched_lines<C> prefetch_into{{sums}, {prefetched_lines<C>::line}, length};
      for (index_t i = 1; i < most; ++i) {
        const index_t row = (most - 1) * call + i - 1;
        prefetch_into.first[i] = row < end_ ? rows_.first + row * rows_.ld : sums;
        prefetch_into.step[i] = step_;
      }
      return prefetch_into;
    }

   private:
    static constexpr index_t most = prefetched_lines<C>::most, length = tuning<C>::KC / most;
    log_weights<C> rows_{};
    index_t end_ = 0, step_ = 0;
  };

  const fold_plan<C>* plan_;
  index_t tiles_;
  fill_ref<C> fill_;
  stored_ref<C> stored_;
  form_ref<C> form_;
  sums_ref<C> epilogue_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
