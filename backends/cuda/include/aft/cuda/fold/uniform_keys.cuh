// SPDX-License-Identifier: Apache-2.0
/// @file fold/uniform_keys.cuh  What lies outside a window or a filter, folded once for all rows.
///
/// Pairs out there have bias 0, so every row that looks past a tile of keys from afar sees the same sums of it. A block
/// of rows looks at the tiles that its windows touch, and merges the fold of all tiles before them and that of all
/// tiles after: O(B T d) for the folds, and nothing is ever subtracted.
#pragma once

#include "../device/tuning.hpp"
#include "../math/exp_sum.cuh"
#include "../tensor/call.cuh"
#include "runs.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Folds of the positions before, and from, each multiple of tuning::depth: (tiles + 1, columns), column b d + c. A
/// direction is null where nobody looks. Without `used` every pair is summed by itself.
template <class Fold>
struct uniform_sums {
  bool used = false;
  index_t columns = 0, channels = 0, tiles = 0;
  Fold* partials = nullptr;  ///< each tile's own, (tiles, columns)
  Fold* before = nullptr;
  Fold* after = nullptr;
};

/// [lo, hi) widened to whole tiles; not its end, where nothing beyond is seen anyway.
AFT_DEVICE span whole_tiles(index_t lo, index_t hi, index_t most, bool hidden_beyond) {
  constexpr index_t depth = tuning::depth;
  lo = clamp_to(lo, most) / depth * depth;
  hi = clamp_to(hi, most);
  if (!hidden_beyond) hi = clamp_to((hi + depth - 1) / depth * depth, most);
  return {lo, hi};
}

/// The keys that queries [t0, t1) have to look at one by one.
template <class C, class Fold>
AFT_DEVICE span window_keys_of(const device_call<C>& p, const uniform_sums<Fold>& uniform, index_t t0, index_t t1) {
  if (!uniform.used) return keys_of(p, t0, t1);
  // Causal, what is seen ends at a key of each row's own, wherever the windows are: only one side can be folded.
  const index_t lo = t0 - (p.causal && p.reach_before < -p.diagonal ? -p.diagonal : p.reach_before);
  return whole_tiles(lo, t1 + (p.causal ? p.diagonal : p.reach_after), p.Tk, p.causal);
}

/// The queries that keys [s0, s1) have to look at one by one. Causal, those before the first that sees one see none.
template <class C, class Fold>
AFT_DEVICE span window_queries_of(const device_call<C>& p, const uniform_sums<Fold>& uniform, index_t s0, index_t s1) {
  if (!uniform.used) return queries_of(p, s0, s1);
  const index_t hi = s1 + (p.causal && p.reach_before < -p.diagonal ? -p.diagonal : p.reach_before);
  return whole_tiles(s0 - (p.causal ? p.diagonal : p.reach_after), hi, p.Tq, false);
}

/// Tiles by their numbers, which are few.
struct tile_span {
  int begin, end;
};

AFT_DEVICE tile_span tiles_of(const span& x) {
  return {static_cast<int>(x.lo / tuning::depth), static_cast<int>((x.hi + tuning::depth - 1) / tuning::depth)};
}

/// Of all that lies before, or from, the beginning of a tile.
template <class Fold>
AFT_DEVICE const Fold& uniform_sum_at(const uniform_sums<Fold>& uniform, const Fold* folds, int tile, index_t b,
                                      index_t c) {
  return folds[tile * uniform.columns + b * uniform.channels + c];
}

/// A row's sums of the tiles `near`, and of all others.
template <class C>
AFT_DEVICE key_sum<C> with_uniform_keys(key_sum<C> sum, const uniform_sums<key_sum<C>>& uniform, const tile_span& inner,
                                        index_t b, index_t c) {
  if (uniform.before != nullptr) sum = merge(sum, uniform_sum_at(uniform, uniform.before, inner.begin, b, c));
  if (uniform.after != nullptr) sum = merge(sum, uniform_sum_at(uniform, uniform.after, inner.end, b, c));
  return sum;
}

/// From the tiles' own folds to those of all before, in the first half of the blocks, and of all from there on, in the
/// second.
template <class Fold>
AFT_KERNEL(merge_threads<Fold>, 1)
uniform_sums_kernel(const AFT_PARAMETER uniform_sums<Fold> uniform, const AFT_PARAMETER run_plan runs) {
  run_plan plan = runs;
  plan.forwards = block_index() < runs.blocks();
  Fold* const to = plan.forwards ? uniform.before : uniform.after;
  if (to == nullptr) return;
  const run_place at = run_place::of(plan, plan.forwards ? block_index() : block_index() - runs.blocks());
  const Fold before = merged_runs<run_warps<Fold>>(plan, at, uniform.partials, at.warp);
  if (!at.exists) return;
  // The beginning of the tile that the step is about to merge.
  const auto store = [&](index_t step, const Fold& sum) {
    to[(plan.forwards ? step : plan.count - step) * plan.columns + at.column] = sum;
  };
  const Fold sum = through_run(plan, at, uniform.partials, before,
                               [&](index_t step, const Fold& up_to, const Fold&) { store(step, up_to); });
  if (at.last) store(plan.count, sum);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
