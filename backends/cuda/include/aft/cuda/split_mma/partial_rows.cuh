// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/partial_rows.cuh  The rows of a tile that see a part of its keys: pair by pair, like the fold.
#pragma once

#include "mainloop.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Half the depth of a tile, so that the buffers fit beside those of the mainloop in 48 KiB.
inline constexpr int hidden_depth = tuning::depth / 2;

struct hidden_buffers {
  split_exp<float> weights[product_rows][hidden_depth + 1];
  split_exp<float> keys[hidden_depth][tuning::lanes];
  float values[hidden_depth][tuning::lanes];
};

AFT_DEVICE void stage_hidden(const device_call<float>& p, const column& col, index_t b, index_t h, index_t t0,
                             index_t t_end, index_t s0, hidden_buffers& tile) {
  const int lane = thread_index() % warp_size;
  for (int i = thread_index() / warp_size; i < hidden_depth; i += tuning::product_warps) {
    const float key = col.exists ? load_key(p, col.b, s0 + i, col.c) : -number<float>::infinity;
    const bool seen = key != -number<float>::infinity;
    tile.keys[i][lane] = stage_logit(key);
    tile.values[i][lane] = seen ? load<float>(p.v, p.positions, col.b, s0 + i, col.c) : 0.0f;
  }
  AFT_DEVICE_UNROLL_BY(1)
  for (int i = thread_index(); i < product_rows * hidden_depth; i += product_threads) {
    const index_t t = t0 + i / hidden_depth;
    const index_t s = s0 + i % hidden_depth;
    const float w = t < t_end && s < p.Tk ? visible_weight(p, b, h, t, s) : -number<float>::infinity;
    tile.weights[i / hidden_depth][i % hidden_depth] = stage_logit(w);
  }
}

/// Adds the staged keys to the rows that see some of them. `acc` is working memory.
AFT_DEVICE void add_hidden(const hidden_buffers& tile, const row_view (&view)[product_rows], const warp_tile& at,
                           tile_sums& acc, row_sums& sums) {
  constexpr int rows = warp_tile::row_blocks, columns = warp_tile::column_blocks;
  bool part[rows][2];
  float top[rows][columns][2];
  AFT_DEVICE_UNROLL
  for (int m = 0; m < rows; ++m) AFT_DEVICE_UNROLL
  for (int half = 0; half < 2; ++half) {
    part[m][half] = view[at.row(m, half)] == row_view::part;
    AFT_DEVICE_UNROLL
    for (int n = 0; n < columns; ++n) {
      top[m][n][half] = sums[m][n][half].max;
      acc[m][n][2 * half] = acc[m][n][2 * half + 1] = 0.0f;
    }
  }
  AFT_DEVICE_UNROLL_BY(1)
  for (int s = 0; s < hidden_depth; ++s) AFT_DEVICE_UNROLL
  for (int n = 0; n < columns; ++n) {
    const float key = tile.keys[s][at.column(n)].exponent;
    AFT_DEVICE_UNROLL
    for (int m = 0; m < rows; ++m) AFT_DEVICE_UNROLL
    for (int half = 0; half < 2; ++half)
      top[m][n][half] = larger(top[m][n][half], key + tile.weights[at.row(m, half)][s].exponent);
  }
  AFT_DEVICE_UNROLL_BY(1)
  for (int s = 0; s < hidden_depth; ++s) AFT_DEVICE_UNROLL
  for (int n = 0; n < columns; ++n) {
    const split_exp<float> key = tile.keys[s][at.column(n)];
    const float value = tile.values[s][at.column(n)];
    AFT_DEVICE_UNROLL
    for (int m = 0; m < rows; ++m) AFT_DEVICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const split_exp<float> weight = tile.weights[at.row(m, half)][s];
      // What is behind a hidden pair may be NaN.
      if (!part[m][half] || weight.mantissa == 0.0f || key.mantissa == 0.0f) continue;
      const float factor =
          key.mantissa * weight.mantissa * pow2<float>(key.exponent + weight.exponent - top[m][n][half]);
      acc[m][n][2 * half] = fused(factor, value, acc[m][n][2 * half]);
      acc[m][n][2 * half + 1] += factor;
      sums[m][n][half].largest = larger(sums[m][n][half].largest, magnitude(value));
    }
  }
  AFT_DEVICE_UNROLL
  for (int n = 0; n < columns; ++n) AFT_DEVICE_UNROLL
  for (int m = 0; m < rows; ++m) AFT_DEVICE_UNROLL
  for (int half = 0; half < 2; ++half) {
    if (part[m][half])
      merge_into(sums[m][n][half], acc[m][n][2 * half], acc[m][n][2 * half + 1], top[m][n][half], 1.0f);
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
