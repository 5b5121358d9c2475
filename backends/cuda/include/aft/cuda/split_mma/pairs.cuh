// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/pairs.cuh  dw on the tensor cores, 64 x 64 pairs a block: see split_mma/pack_pairs.cuh.
///
/// Sums are of one row of either side each, so what is behind a hidden pair reaches no other. Elements that are not
/// proven flag their 16 x 16 pairs, which pair_gradient sums again.
#pragma once

#include "../bias_gradient/pairs.cuh"
#include "mainloop.cuh"
#include "pack_pairs.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// `pairs` has tiles of 16 x 16 with common steps of 64.
struct pair_product {
  pair_plan<float> pairs{};
  pair_side queries{}, keys{};
  index_t row_tiles = 0, key_tiles = 0;  ///< of 64

  index_t blocks() const { return pairs.count * row_tiles * key_tiles; }
};

/// Of the mainloop, and after it of the epilogue.
union pair_product_buffers {
  struct {
    pair_tile queries[2];
    pair_tile keys[2];
  } loop;
  float sums[pair_rows][pair_rows + 1];
};

/// sum 2^unit e^w, or not proven: each of `terms` products loses at most Operand::lost of the unit, which is to be
/// below 2^-25 of the sum. A hidden pair has gradient 0 whatever was summed.
struct pair_value {
  float dw;
  bool proven;
};
template <class Operand>
AFT_DEVICE pair_value pair_epilogue(float sum, float unit, float w, float terms) {
  if (w == -number<float>::infinity) return {0.0f, true};
  const split_exp<float> weight = stage_logit(w);
  const float exponent = unit + weight.exponent;
  // Nothing was added but zeros.
  if (sum == 0.0f && unit < no_exponent<float> / 2.0f && exponent == exponent) return {0.0f, true};
  // In two steps, for a result among the denormal numbers.
  const float most = exponent < -120.0f ? -120.0f : exponent;
  pair_value x{};
  x.dw = sum * weight.mantissa * pow2<float>(most) * pow2<float>(exponent - most);
  x.proven = exponent <= 120.0f && is_finite(x.dw) && magnitude(sum) >= terms * (Operand::lost * 0x1p25f);
  return x;
}

template <class Operand>
AFT_KERNEL(product_threads, 3)
pair_product_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pair_product plan) {
  pair_product_buffers& buffers = shared<pair_product_buffers>();
  const pair_plan<float>& pairs = plan.pairs;
  const index_t row_tile = block_index() / plan.key_tiles;
  const index_t batch_item = row_tile / plan.row_tiles;
  const index_t t0 = pairs.r0 + row_tile % plan.row_tiles * pair_rows;
  const index_t s0 = pairs.first_key(p, t0) + block_index() % plan.key_tiles * pair_rows;
  const index_t t_end = t0 + pair_rows < pairs.r1 ? t0 + pair_rows : pairs.r1;
  const warp_tile at = warp_tile::own();
  const bool seen = s0 < p.Tk && !(p.causal && s0 >= t_end + p.diagonal);

  tile_sums sums;
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
  const index_t own_rows = (pairs.first + batch_item) * plan.queries.padded_rows() + t0;
  const index_t own_keys = (pairs.first + batch_item) * plan.keys.padded_rows() + s0;
  if (seen) {
    const int tiles = static_cast<int>(plan.queries.column_tiles);
    const pair_tile* const queries = plan.queries.tiles + own_rows / pair_rows * tiles;
    const pair_tile* const keys = plan.keys.tiles + own_keys / pair_rows * tiles;
    start_copy(queries[0], buffers.loop.queries[0]);
    start_copy(keys[0], buffers.loop.keys[0]);
    commit_copies();
    for (int i = 0; i < tiles; ++i) {
      sync();  // all threads have done with the tiles before
      if (i + 1 < tiles) {
        start_copy(queries[i + 1], buffers.loop.queries[(i + 1) % 2]);
        start_copy(keys[i + 1], buffers.loop.keys[(i + 1) % 2]);
      }
      commit_copies();
      wait_copies<1>();
      sync();
      tile_sums acc;
      multiply_tile<Operand>(buffers.loop.queries[i % 2].operand, buffers.loop.keys[i % 2].operand, at, acc);
      AFT_DEVICE_UNROLL
      for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
      for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
      for (int j = 0; j < 4; ++j) sums[m][n][j] += acc[m][n][j];
    }
    wait_copies<0>();
  }

  // Through shared memory, so that a warp has 32 keys of a row, which are whole lines to write.
  sync();
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) buffers.sums[at.row(m, i / 2)][2 * at.column(n) + i % 2] = sums[m][n][i];
  sync();
  const index_t h = pairs.cols.head(pairs.first + batch_item);
  const index_t b = pairs.cols.batch(pairs.first + batch_item);
  const float terms = static_cast<float>(2 * pairs.cols.count());
  constexpr int side = tuning::pairs;
  // A warp has the 16 rows of a row of flags.
  static_assert(tuning::product_warps * side == pair_rows && warp_size == 2 * side);
  const int first = thread_index() / warp_size * side;
  const index_t flag_row = (t0 - pairs.r0 + first) / side;
  AFT_DEVICE_UNROLL_BY(1)
  for (int column = at.lane; column < pair_rows; column += warp_size) {
    const index_t s = s0 + column;
    bool proven = true;
    AFT_DEVICE_UNROLL_BY(1)
    for (int row = first; row < first + side; ++row) {
      const index_t t = t0 + row;
      if (t >= t_end || s >= p.Tk) continue;
      const bool visible = seen && !place_hidden(p, t, s) && inside(p, t, s);
      const float w = visible ? weight(p, b, h, t, s) : -number<float>::infinity;
      const float unit = visible ? plan.queries.exponents[own_rows + row] + plan.keys.exponents[own_keys + column] : 0;
      const pair_value x = pair_epilogue<Operand>(buffers.sums[row][column], unit, w, terms);
      proven = proven && x.proven;
      store_pair(p, pairs, pairs.first + batch_item, t, s, x.dw);
    }
    const std::uint32_t doubtful = ballot(!proven);
    if (flag_row >= pairs.row_tiles || at.lane % side != 0) continue;
    const index_t flag_column = block_index() % plan.key_tiles * (pair_rows / side) + column / side;
    pairs.flags[(batch_item * pairs.row_tiles + flag_row) * pairs.key_tiles + flag_column] =
        doubtful >> at.lane & 0xffffu;
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
