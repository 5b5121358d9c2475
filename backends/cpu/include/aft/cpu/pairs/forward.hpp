// SPDX-License-Identifier: Apache-2.0
/// @file pairs/forward.hpp  The forward call of every operator that weighs pairs: AFT Eq. 2 by the tile engine.
#pragma once

#include "../epilogue/queries.hpp"
#include "../gemm/batch.hpp"
#include "../gemm/loop_nest.hpp"
#include "../gemm/loop_nest_k_outer.hpp"
#include "../gemm/pack_keys.hpp"
#include "../gemm/pack_outer_keys.hpp"
#include "../window/epilogue.hpp"
#include "../window/loop_nest.hpp"
#include "../window/pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Whether the products of a call, forward or backward, are those of bfloat16 numbers. With u = 2^-8 both weights of a
/// term, exp(w) and exp(k), are rounded by u, the same in num and den, and num by u once more; so the average moves by
/// at most 3 u (1 + 4 u) max|v| and the lse by 2 u (tested), where rounding y itself is u |y|; weights outside a
/// window are 1, which rounds to itself. Of a gradient both factors and one operand's product are, each term by 3 u (1
/// + 4 u) (docs/adr/0010-bfloat16-products.md).
template <class C>
inline bool multiplies_in_pairs(const problem& p) {
  return has_bf16_dot<C> && p.narrow_products && p.v.type == dtype::bf16 && p.k.type == dtype::bf16;
}

/// Writes y, lse, average and `state`, those that are set. O(B Tq Tk d) multiply-adds for the dense part. `windows`:
/// whether the program has windows, else it need not compile what is for them alone. `room` is for the tile buffers.
template <class C, bool windows>
inline void pair_forward(const problem& p, const row_state& state, const cpu& exec, scratch& memory,
                         std::size_t room = tile_bytes) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  const bias_batch<C> batch_items(p);
  const staged_factors<C> factors = stage_factors<C>(p, memory, true, false);
  // Of other types, keys are read faster many lane tiles at a time, as fold_pairs reads them.
  const bool served = windows && p.k.type == dtype_of<C> && p.v.type == dtype_of<C>;
  const pair_weights<C> any_weights(p, factors, 0, 0);
  const fold_traits traits{.pairs = multiplies_in_pairs<C>(p) && !state.set,
                           .windows = served,
                           .rows_kept = p.bias.kind == bias_kind::generated,
                           .rows_stored = any_weights.stores_rows(),
                           .units = !multiplies_in_pairs<C>(p) || state.set,
                           .rows_made = any_weights.makes_rows()};
  const auto plan_fold = [&](int threads, scratch& from) {
    return fold_plan<C>(query_geometry(p), batch_items.count(), batch_items.tiles(), batch_items.run(), threads, traits,
                        from);
  };
  const auto bytes_of_tiles = [&](int threads) {
    scratch counter;
    plan_fold(threads, counter);
    return counter.counted();
  };
  const auto arrays = static_cast<std::size_t>(2 * p.B * p.Tk * p.d) * sizeof(C);
  const fold_plan<C> plan = plan_fold(threads_within(room + arrays, thread_count(exec), bytes_of_tiles), memory);
  if (is_trial(exec)) return;
  for_each_batch_item(plan, batch_items.count(), [&](index_t i, int thread) {
    const auto batch_item = batch_items.at(i);
    const pair_weights<C> weights(p, factors, batch_item.b, batch_item.h);
    const auto stored = [&](index_t r0, index_t s0, index_t s1) {
      const bool whole = padded_weights<C>(s1 - s0, plan.paired) == s1 - s0;
      return whole && weights.as_stored(r0, s1) ? weights.stored(r0, s0) : log_weights<C>{};
    };
    const auto fill = [&](index_t r0, index_t r1, index_t s0, index_t s1, C* out, index_t ld) {
      if constexpr (windows) {
        // A window is a few lines of a row, rows that the hardware does not foresee.
        const index_t ahead = plan.by_batch_item ? tuning<C>::MR : plan.threads * tuning<C>::MR;
        if (plan.order == loop_order::window && r1 + ahead <= p.Tq && s1 + ahead <= p.Tk)
          weights.prefetch(r0 + ahead, r1 + ahead, s0 + ahead, s1 + ahead);
      }
      const log_weights<C> in_place = stored(r0, s0, s1);
      return in_place.first != nullptr ? in_place : weights.rows(r0, r1, s0, s1, out, ld);
    };
    const auto epilogue = [&](index_t tile, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                              const C* c, kept_keys<C>* = nullptr) {
      query_epilogue<C>(p, plan, state, weights, batch_items.tile(batch_item, tile), cs, r0, r1, rs, c);
    };
    if constexpr (windows) {
      if (plan.order == loop_order::window) {
        const auto run = [&](const fold_item& item) {
          lane_tile<C>* const own = plan.group_tiles.of(item.slot);
          const auto tiles_from = [&](index_t tile, lane_tile<C>* to) {
            return window_tiles<C>(item.count, to, [&](index_t j) { return batch_items.tile(batch_item, tile + j); });
          };
          const window_tiles<C> tiles = tiles_from(item.tile, own);
          window_key_packer<C> source(p, tiles, plan.sources.of(item.slot));
          // The thread's next group, most likely.
          const index_t next = item.tile + plan.group;
          window_lines<C> upcoming(p.Tk);
          if (plan.keys_resident && next + item.count <= batch_items.tiles())
            upcoming = key_lines<C>(p, tiles_from(next, own + plan.group));
          fold_window_item<C>(plan, thread, item, source, quick_outputs<C>(p, state, tiles), upcoming, nullptr,
                              epilogue_ref<C>(epilogue));
        };
        fold_window<C>(plan, thread, batch_items.tiles(), fill_ref<C>(fill), run);
        return;
      }
    }
    if (plan.order == loop_order::k_outer) {
      const auto tiles_from = [&](index_t tile) {
        return [&, tile](index_t j) { return batch_items.tile(batch_item, tile + j); };
      };
      const auto measure = [&](index_t tile, index_t n, column_scale<C>* cs) {
        outer_key_blocks<C>(p, n, tiles_from(tile)).measure(plan.paired, cs);
      };
      const auto form = [&](index_t tile, index_t n, index_t s0, index_t s1, C* P, const column_scale<C>* cs) {
        outer_key_blocks<C>(p, n, tiles_from(tile)).form(cs, s0, s1, plan.paired, plan.column_size, P);
      };
      k_outer_nest<C> fold(plan, batch_items.tiles(), fill_ref<C>(fill), stored_ref<C>(stored), form_ref<C>(form),
                           sums_ref<C>(epilogue));
      return fold.run(measure_ref<C>(measure));
    }
    const auto pack = [&](int, index_t tile, index_t n, C* P, column_scale<C>* cs) {
      pack_keys<C>(
          p, n, [&](index_t j) { return batch_items.tile(batch_item, tile + j); }, plan.paired, plan.column_size, P,
          cs);
    };
    fold_pairs<C>(plan, thread, batch_items.tiles(), fill_ref<C>(fill), pack_ref<C>(pack), sums_ref<C>(epilogue));
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
