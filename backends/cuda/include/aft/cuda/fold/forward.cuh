// SPDX-License-Identifier: Apache-2.0
/// @file fold/forward.cuh  The forward fold of any bias with a running maximum, AFT Eq. 2: a block has 32 channels, 16
/// rows.
///
/// Each thread sums num and den of two rows in one column, relative to the largest power of two that a weight of its
/// row has had so far. That holds for every finite logit up to number<C>::range; rows that see others, or values at
/// the ends of the type, are flagged and left to fold/exact.cuh.
#pragma once

#include "../tensor/weights.cuh"
#include "epilogue.cuh"
#include "flags.cuh"
#include "uniform_keys.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

template <class C>
struct fold_buffers {
  // A column more than the depth: the transposed fold stores down the columns.
  split_exp<C> weights[fold_rows][tuning::depth + 1];
  split_exp<C> keys[tuning::depth][tuning::lanes];
  C values[tuning::depth][tuning::lanes];
  tile_looks looks;
};

/// Keys s0.. of the block's columns: exp(k) split, and v, which is 0 where the key is hidden, whatever it holds.
template <class C>
AFT_DEVICE void stage_keys(const device_call<C>& p, const column& col, index_t s0, fold_buffers<C>& tile) {
  const int lane = thread_index() % warp_size;
  for (int i = thread_index() / warp_size; i < tuning::depth; i += tuning::warps) {
    const C key = col.exists ? load_key(p, col.b, s0 + i, col.c) : -number<C>::infinity;
    const bool seen = key != -number<C>::infinity;
    tile.keys[i][lane] = stage_logit(key);
    tile.values[i][lane] = seen ? load<C>(p.v, p.positions, col.b, s0 + i, col.c) : C(0);
  }
}

/// Weights of rows t0.. and keys s0..; true where a pair is hidden that its key alone does not hide, or where a weight
/// is no number that a hidden key could make 0.
template <class C>
AFT_DEVICE bool stage_weights(const device_call<C>& p, index_t b, index_t h, index_t t0, index_t t_end, index_t s0,
                              fold_buffers<C>& tile) {
  bool hides = false;
  for (int i = thread_index(); i < fold_rows * tuning::depth; i += fold_threads) {
    const index_t t = t0 + i / tuning::depth;
    const index_t s = s0 + i % tuning::depth;
    // A key that does not exist is hidden by its own weight.
    const bool exists = t < t_end && s < p.Tk;
    const C w = exists ? visible_weight(p, b, h, t, s) : -number<C>::infinity;
    const split_exp<C> staged = stage_logit(w);
    tile.weights[i / tuning::depth][i % tuning::depth] = staged;
    hides = hides || (s < p.Tk && !(staged.mantissa > C(0)));
  }
  return hides;
}

/// Adds a tile to a row. With `hiding` some pairs of it are hidden, and what is behind them may be NaN.
template <bool hiding, class C>
AFT_DEVICE void add_tile(const fold_buffers<C>& tile, int row, int lane, key_sum<C>& sum) {
  C top = sum.max;
  AFT_DEVICE_UNROLL_BY(8)
  for (int s = 0; s < tuning::depth; ++s)
    top = larger(top, tile.keys[s][lane].exponent + tile.weights[row][s].exponent);
  C num = C(0), den = C(0);
  AFT_DEVICE_UNROLL_BY(4)
  for (int s = 0; s < tuning::depth; ++s) {
    const split_exp<C> key = tile.keys[s][lane];
    const split_exp<C> weight = tile.weights[row][s];
    C value = tile.values[s][lane];
    C factor = key.mantissa * weight.mantissa * pow2<C>(key.exponent + weight.exponent - top);
    if (hiding && (weight.mantissa == C(0) || key.mantissa == C(0))) value = factor = C(0);
    sum.largest = larger(sum.largest, magnitude(value));
    num = fused(factor, value, num);
    den += factor;
  }
  const C scale = pow2<C>(sum.max - top);
  sum.num = fused(sum.num, scale, num);
  sum.den = fused(sum.den, scale, den);
  sum.max = top;
}

/// The rows of a tile.
template <class C>
AFT_DEVICE void fold_tile(const device_call<C>& p, const fold_plan& plan, const uniform_sums<key_sum<C>>& uniform,
                          const fold_place& at, fold_buffers<C>& tile) {
  const int lane = thread_index() % warp_size;
  const int first = thread_index() / warp_size * tuning::rows_per_thread;
  const column col = plan.cols.at(at.batch_item, at.first_column + lane);
  const index_t h = plan.cols.head(at.batch_item);
  const index_t b = plan.cols.batch(at.batch_item);
  const index_t t_end = at.first_row + fold_rows < plan.r1 ? at.first_row + fold_rows : plan.r1;
  const span keys = window_keys_of(p, uniform, at.first_row, t_end);

  key_sum<C> sums[tuning::rows_per_thread];
  // Tiles begin at multiples of their depth, so that a row's terms are merged alike wherever its block begins.
  for (index_t s0 = keys.lo / tuning::depth * tuning::depth; s0 < keys.hi; s0 += tuning::depth) {
    sync();
    stage_keys(p, col, s0, tile);
    const bool hides = stage_weights(p, b, h, at.first_row, t_end, s0, tile);
    if (sync_any(hides)) {
      AFT_DEVICE_UNROLL
      for (int r = 0; r < tuning::rows_per_thread; ++r) add_tile<true>(tile, first + r, lane, sums[r]);
    } else {
      AFT_DEVICE_UNROLL
      for (int r = 0; r < tuning::rows_per_thread; ++r) add_tile<false>(tile, first + r, lane, sums[r]);
    }
  }

  AFT_DEVICE_UNROLL
  for (int r = 0; r < tuning::rows_per_thread; ++r) {
    const index_t t = at.first_row + first + r;
    const index_t flag = at.tile * fold_rows + first + r;
    const bool wanted = col.exists && t < t_end && (!plan.only_flagged || (plan.flags[flag] >> lane & 1u) != 0);
    const key_sum<C> sum = wanted ? with_uniform_keys(sums[r], uniform, tiles_of(keys), col.b, col.c) : sums[r];
    const bool done = wanted && settled(p, col.b, t, proven(sum));
    const std::uint32_t word = ballot(wanted && !done);
    if (lane == 0) plan.flags[flag] = word;
    if (!wanted || !done) continue;
    row_result<C> result;
    result.average = average_of(sum);
    result.den = sum.den;
    result.exponent = sum.max;
    row_epilogue(p, col.b, t, col.c, result);
  }
}

template <class C>
AFT_KERNEL(fold_threads, 2)
fold_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER fold_plan plan,
            const AFT_PARAMETER uniform_sums<key_sum<C>> uniform) {
  fold_buffers<C>& tile = shared<fold_buffers<C>>();
  visit_tiles(plan, tile.looks, [&](const fold_place& at) { fold_tile(p, plan, uniform, at, tile); });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
