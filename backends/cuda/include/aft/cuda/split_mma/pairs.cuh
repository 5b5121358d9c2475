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
  int slices = 1;                        ///< of the columns, whose sums meet in `partials`
  float* partials = nullptr;             ///< (slices, blocks, 32, threads), where there are several

  AFT_HOST_DEVICE index_t blocks() const { return pairs.count * row_tiles * key_tiles; }
};

inline constexpr int pair_sums = pair_rows * pair_rows / product_threads;

/// So that few pairs of many columns, as of images, keep a device busy: about tuning::pair_blocks in all, each with
/// pair_slice_tiles of columns at least. `tiles`: of pairs, of the whole problem and all heads, but of one batch
/// element: a slice is part of a result's bits.
inline int slices_of(index_t tiles, index_t column_tiles) {
  const index_t wanted =
      min_of(ceil_div(tuning::pair_blocks, max_of(tiles, 1)), column_tiles / tuning::pair_slice_tiles);
  return static_cast<int>(max_of(wanted, 1));
}

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

/// What a block works on.
struct pair_place {
  index_t batch_item, row_tile, key_tile, t0, s0, t_end, own_rows, own_keys;
  bool seen;

  AFT_DEVICE static pair_place of(const device_call<float>& p, const pair_product& plan, index_t block) {
    const pair_plan<float>& pairs = plan.pairs;
    const index_t row_tile = block / plan.key_tiles;
    pair_place at{};
    at.key_tile = block - row_tile * plan.key_tiles;
    at.batch_item = row_tile / plan.row_tiles;
    at.row_tile = row_tile - at.batch_item * plan.row_tiles;
    at.t0 = pairs.r0 + at.row_tile * pair_rows;
    at.s0 = pairs.first_key(p, at.t0) + at.key_tile * pair_rows;
    at.t_end = at.t0 + pair_rows < pairs.r1 ? at.t0 + pair_rows : pairs.r1;
    at.seen = at.s0 < p.Tk && !(p.causal && at.s0 >= at.t_end + p.diagonal);
    at.own_rows = (pairs.first + at.batch_item) * plan.queries.padded_rows() + at.t0;
    at.own_keys = (pairs.first + at.batch_item) * plan.keys.padded_rows() + at.s0;
    return at;
  }
};

/// From sums to dw, through shared memory, so that a warp has 32 keys of a row, which are whole lines to write.
template <class Operand>
AFT_DEVICE void finish_pairs(const device_call<float>& p, const pair_product& plan, const pair_place& place,
                             const tile_sums& sums, pair_product_buffers& buffers) {
  const pair_plan<float>& pairs = plan.pairs;
  const warp_tile at = warp_tile::own();
  sync();
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) buffers.sums[at.row(m, i / 2)][2 * at.column(n) + i % 2] = sums[m][n][i];
  sync();
  const index_t h = pairs.cols.head(pairs.first + place.batch_item);
  const index_t b = pairs.cols.batch(pairs.first + place.batch_item);
  const float terms = static_cast<float>(2 * pairs.cols.count());
  constexpr int side = tuning::pairs;
  // A warp has the 16 rows of a row of flags.
  static_assert(tuning::product_warps * side == pair_rows && warp_size == 2 * side);
  const int first = thread_index() / warp_size * side;
  const index_t flag_row = (place.t0 - pairs.r0 + first) / side;
  AFT_DEVICE_UNROLL_BY(1)
  for (int column = at.lane; column < pair_rows; column += warp_size) {
    const index_t s = place.s0 + column;
    bool proven = true;
    AFT_DEVICE_UNROLL_BY(1)
    for (int row = first; row < first + side; ++row) {
      const index_t t = place.t0 + row;
      if (t >= place.t_end || s >= p.Tk) continue;
      const bool visible = place.seen && !place_hidden(p, t, s) && inside(p, t, s);
      const float w = visible ? weight(p, b, h, t, s) : -number<float>::infinity;
      const float unit =
          visible ? plan.queries.row_unit(place.own_rows + row) + plan.keys.row_unit(place.own_keys + column) : 0;
      const pair_value x = pair_epilogue<Operand>(buffers.sums[row][column], unit, w, terms);
      proven = proven && x.proven;
      store_pair(p, pairs, pairs.first + place.batch_item, t, s, x.dw);
    }
    const std::uint32_t doubtful = ballot(!proven);
    if (flag_row >= pairs.row_tiles || at.lane % side != 0) continue;
    const index_t flag_column = place.key_tile * (pair_rows / side) + column / side;
    pairs.flags[(place.batch_item * pairs.row_tiles + flag_row) * pairs.key_tiles + flag_column] =
        doubtful >> at.lane & 0xffffu;
  }
}

template <class Operand>
AFT_KERNEL(product_threads, 3)
pair_product_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pair_product plan) {
  pair_product_buffers& buffers = shared<pair_product_buffers>();
  const index_t slice = block_index() / plan.blocks();
  const index_t block = block_index() - slice * plan.blocks();
  const pair_place place = pair_place::of(p, plan, block);
  const warp_tile at = warp_tile::own();

  tile_sums sums;
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
  if (place.seen) {
    const int all = static_cast<int>(plan.queries.column_tiles);
    const int share = (all + plan.slices - 1) / plan.slices;
    const int begin = static_cast<int>(slice) * share;
    const int end = begin + share < all ? begin + share : all;
    const pair_tile* const queries = plan.queries.tiles + place.own_rows / pair_rows * all;
    const pair_tile* const keys = plan.keys.tiles + place.own_keys / pair_rows * all;
    if (begin < end) {
      start_copy(queries[begin], buffers.loop.queries[begin % 2]);
      start_copy(keys[begin], buffers.loop.keys[begin % 2]);
    }
    commit_copies();
    for (int i = begin; i < end; ++i) {
      sync();  // all threads have done with the tiles before
      if (i + 1 < end) {
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
  if (plan.slices == 1) return finish_pairs<Operand>(p, plan, place, sums, buffers);
  float* const to = plan.partials + block_index() * (pair_sums * product_threads) + thread_index();
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) to[((m * warp_tile::column_blocks + n) * 4 + i) * product_threads] = sums[m][n][i];
}

/// The slices of each tile, added in their order.
template <class Operand>
AFT_KERNEL(product_threads, 3)
pair_slices_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pair_product plan) {
  pair_product_buffers& buffers = shared<pair_product_buffers>();
  tile_sums sums;
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
  AFT_DEVICE_UNROLL_BY(1)
  for (int slice = 0; slice < plan.slices; ++slice) {
    const float* const from =
        plan.partials + (slice * plan.blocks() + block_index()) * (pair_sums * product_threads) + thread_index();
    AFT_DEVICE_UNROLL
    for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
    for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) sums[m][n][i] += from[((m * warp_tile::column_blocks + n) * 4 + i) * product_threads];
  }
  finish_pairs<Operand>(p, plan, pair_place::of(p, plan, block_index()), sums, buffers);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
