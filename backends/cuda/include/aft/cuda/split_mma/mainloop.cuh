// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/mainloop.cuh  A tile of weights times one of keys on the tensor cores, added to the rows' sums.
#pragma once

#include "../fold/forward.cuh"
#include "pack_keys.cuh"
#include "pack_weights.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The part of a block's tile that a warp computes: 32 rows and 16 columns, num and den of each. A thread has 4 rows
/// of 4 columns, in the order in which mma.sync hands results out.
struct warp_tile {
  static constexpr int row_blocks = 2;     ///< of 16 rows
  static constexpr int column_blocks = 4;  ///< of 4 columns
  static constexpr int warps_down = product_rows / (16 * row_blocks);
  static_assert(tuning::product_warps == warps_down * (tuning::lanes / (4 * column_blocks)));
  int first_row, first_column, lane;

  AFT_DEVICE static warp_tile own() {
    const int warp = thread_index() / warp_size;
    return {warp % warps_down * 16 * row_blocks, warp / warps_down * 4 * column_blocks, thread_index() % warp_size};
  }
  AFT_DEVICE int row(int m, int half) const { return first_row + 16 * m + 8 * half + lane / 4; }
  AFT_DEVICE int column(int n) const { return first_column + 4 * n + lane % 4; }
};

/// acc[m][n][2 half] is num, [2 half + 1] den of row(m, half) and column(n).
using tile_sums = float[warp_tile::row_blocks][warp_tile::column_blocks][4];
using row_sums = key_sum<float>[warp_tile::row_blocks][warp_tile::column_blocks][2];

/// Fragments of several steps of depth, `words` each.
template <class Operand, int words>
struct split_fragments {
  std::uint32_t hi[Operand::together][words];
  std::uint32_t lo[Operand::together][words];
};

/// d += a b for the weights that hi and lo stand for, the smallest products first, each scaled when the next merge.
template <class Operand>
AFT_DEVICE void multiply_split(float (&d)[4], const split_fragments<Operand, 4>& a,
                               const split_fragments<Operand, 2>& b) {
  constexpr float down = 1.0f / Operand::lo_scale;
  const auto rescale = [&d] {
    // Only a d that was 0 before holds nothing but products of this scale.
    static_assert(down == 1.0f || Operand::together * Operand::step == tuning::depth);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4 && down != 1.0f; ++i) d[i] *= down;
  };
  AFT_DEVICE_UNROLL
  for (int i = 0; i < Operand::together; ++i) Operand::multiply(d, a.lo[i], b.lo[i]);
  rescale();
  AFT_DEVICE_UNROLL
  for (int i = 0; i < Operand::together; ++i) {
    Operand::multiply(d, a.lo[i], b.hi[i]);
    Operand::multiply(d, a.hi[i], b.lo[i]);
  }
  rescale();
  AFT_DEVICE_UNROLL
  for (int i = 0; i < Operand::together; ++i) Operand::multiply(d, a.hi[i], b.hi[i]);
}

/// The sums of two tiles of operands, from 0: tensor cores cut off what lies below the last bit of a sum, so that long
/// sums would drift towards 0. A tile of 32 keys stops that after a few additions, and tiles are merged by rounding
/// ones.
template <class Operand>
AFT_DEVICE void multiply_tile(const std::byte* left, const std::byte* right, const warp_tile& at, tile_sums& acc) {
  constexpr int rows = warp_tile::row_blocks, columns = warp_tile::column_blocks, together = Operand::together;
  AFT_DEVICE_UNROLL
  for (int m = 0; m < rows; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < columns; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.0f;
  // The row of a matrix that this lane names to load_matrices, and which of the four matrices it is in.
  const int matrix = at.lane / 8;
  const int within = at.lane % 8;
  AFT_DEVICE_UNROLL
  for (int step = 0; step < tuning::depth / Operand::step; step += together) {
    split_fragments<Operand, 4> a[rows];
    AFT_DEVICE_UNROLL
    for (int m = 0; m < rows; ++m) AFT_DEVICE_UNROLL
    for (int j = 0; j < together; ++j)
      Operand::load(left, at.first_row + 16 * m + 8 * (matrix % 2) + within, matrix / 2, step + j, a[m].hi[j],
                    a[m].lo[j]);
    AFT_DEVICE_UNROLL
    for (int n = 0; n < columns; n += 2) {
      split_fragments<Operand, 2> b[2];
      AFT_DEVICE_UNROLL
      for (int j = 0; j < together; ++j) {
        std::uint32_t hi[4], lo[4];
        Operand::load(right, 2 * (at.first_column + 4 * n) + 8 * (matrix / 2) + within, matrix % 2, step + j, hi, lo);
        AFT_DEVICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          b[i / 2].hi[j][i % 2] = hi[i];
          b[i / 2].lo[j][i % 2] = lo[i];
        }
      }
      AFT_DEVICE_UNROLL
      for (int i = 0; i < 2; ++i) AFT_DEVICE_UNROLL
      for (int m = 0; m < rows; ++m) multiply_split<Operand>(acc[m][n + i], a[m], b[i]);
    }
  }
}

/// Merges a tile's sums, which are in units of 2^unit, to a row's.
AFT_DEVICE void merge_into(key_sum<float>& sum, float num, float den, float unit, float value_unit) {
  const float top = larger(sum.max, unit);
  const float keep = pow2<float>(sum.max - top);
  const float scale = pow2<float>(unit - top);
  sum.den = fused(sum.den, keep, den * scale);
  sum.num = fused(sum.num, keep, num * scale * value_unit);
  sum.max = top;
}

template <class Operand>
AFT_DEVICE void merge_tile(const weight_tile& weights, const packed_tile& keys, const warp_tile& at,
                           const tile_sums& acc, row_sums& sums) {
  const float natural = pow2<float>(-2 * Operand::shift);
  AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) {
    const int column = at.column(n);
    const float exponent = keys.exponent[column];
    const float value_unit = keys.value_unit[column];
    const float largest = keys.largest[column];
    AFT_DEVICE_UNROLL
    for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = at.row(m, half);
      if (weights.view[row] != row_view::all) continue;
      key_sum<float>& sum = sums[m][n][half];
      merge_into(sum, acc[m][n][2 * half] * natural, acc[m][n][2 * half + 1] * natural,
                 weights.exponent[row] + exponent, value_unit);
      sum.largest = larger(sum.largest, largest);
    }
  }
}

/// From global to shared memory, by all threads of the block.
template <class Tile>
AFT_DEVICE void start_copy(const Tile& from, Tile& to) {
  constexpr int chunks = static_cast<int>(sizeof(Tile)) / chunk_bytes;
  auto* const source = reinterpret_cast<const std::byte*>(&from);
  auto* const target = reinterpret_cast<std::byte*>(&to);
  for (int i = thread_index(); i < chunks; i += product_threads)
    copy_async(target + i * chunk_bytes, source + i * chunk_bytes);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
