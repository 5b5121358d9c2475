// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/pack_weights.cuh  exp(w) as the left operand of the bfloat16 product.
#pragma once

#include "../split_mma/pack_weights.cuh"
#include "tiles.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int gemm_weights_warps = 8;
inline constexpr int gemm_weights_threads = gemm_weights_warps * warp_size;

/// A row of w, or of its transpose. No pair mask and no excluding window come here: what hides a pair of the row is
/// where it begins or ends.
template <class Side>
struct any_row {
  static constexpr int tiles_at_once = 1, keys_at_once = 1;  ///< whose weights are written out, and so in flight
  const device_call<float>& p;
  index_t b, h, t;

  AFT_DEVICE float at(index_t s) const { return Side::weight_at(p, b, h, t, s); }
};

/// One of a matrix in memory, whose place is worked out once. Such weights are short to write out and wait for memory.
template <class Side>
struct plain_row {
  static constexpr int tiles_at_once = 4, keys_at_once = 2;
  const std::byte* row;
  dtype type;
  index_t step;

  AFT_DEVICE static plain_row of(const device_call<float>& p, index_t b, index_t h, index_t t) {
    const matrix& w = p.bias.w;
    const index_t at = (p.bias.batched ? b : 0) * w.sb + h * w.sh + (t - Side::row_origin(p.bias)) * Side::row_step(w) -
                       Side::depth_origin(p.bias) * Side::depth_step(w);
    return {w.data + at * (w.type == dtype::f32 ? 4 : 2), w.type, Side::depth_step(w)};
  }
  AFT_DEVICE float at(index_t s) const { return load<float>(row, type, s * step); }
};

/// Row r of a tile of rows, by one warp, a lane two neighbouring keys of each tile. Reads w twice, once for the
/// largest.
template <class Row>
AFT_DEVICE void pack_row(const gemm_place& place, span seen, const Row& row, int r, float& unit_of_row,
                         left_tile* tiles) {
  const int lane = thread_index() % warp_size;
  const index_t first = place.begin * index_t{gemm_depth} + 2 * lane;
  const auto weight_at = [&](index_t s) { return s >= seen.lo && s < seen.hi ? row.at(s) : -number<float>::infinity; };

  float largest = -number<float>::infinity;
  bool special = false;
  AFT_DEVICE_UNROLL_BY(Row::tiles_at_once)
  for (int tile = 0; tile < place.end - place.begin; ++tile) AFT_DEVICE_UNROLL_BY(Row::keys_at_once)
  for (int j = 0; j < 2; ++j) {
    const float w = weight_at(first + tile * index_t{gemm_depth} + j);
    special = special || !(w <= number<float>::range);
    largest = larger(largest, w);
  }
  AFT_DEVICE_UNROLL
  for (int mask = 1; mask < warp_size; mask *= 2) largest = larger(largest, shuffle_xor(largest, mask));
  const bool low = largest < ordinary_logit && largest != -number<float>::infinity;
  const bool out = ballot(special) != 0 || low;
  const float unit = out ? number<float>::nan : stage_logit(largest).exponent;
  if (lane == 0) unit_of_row = unit;
  if (out) seen.hi = seen.lo;

  AFT_DEVICE_UNROLL_BY(Row::tiles_at_once)
  for (int tile = 0; tile < place.end - place.begin; ++tile) {
    std::uint32_t word = 0;
    AFT_DEVICE_UNROLL_BY(Row::keys_at_once)
    for (int j = 0; j < 2; ++j) {
      const split_exp<float> e = stage_logit(weight_at(first + tile * index_t{gemm_depth} + j));
      const float x = e.mantissa > 0.0f ? e.mantissa * pow2<float>(e.exponent - unit) : 0.0f;
      word |= static_cast<std::uint32_t>(float_to_bfloat16(x)) << (16 * j);
    }
    std::byte* const to = tiles[tile].operand + chunk_at(r, lane / 4) + lane % 4 * 4;
    *reinterpret_cast<std::uint32_t*>(to) = word;
  }
}

template <class Side>
AFT_KERNEL(gemm_weights_threads, 3)
gemm_weights_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER gemm_plan plan,
                    const AFT_PARAMETER uniform_sums<typename Side::fold> uniform) {
  const index_t index = block_index() * gemm_weights_warps + thread_index() / warp_size;
  if (index >= plan.left_rows()) return;
  const index_t tile = index / gemm_rows;
  const int r = static_cast<int>(index % gemm_rows);
  const index_t batch_item = tile / plan.row_tiles;
  const gemm_place place =
      gemm_place::of_rows<Side>(p, uniform, plan, batch_item, tile - batch_item * plan.row_tiles, 0);
  const index_t row = place.first_row + r;
  span seen = Side::seen_by(p, Side::near_rows(p, uniform, place.first_row, place.last_row), row);
  if (row >= place.last_row) seen.hi = seen.lo;
  const index_t b = plan.rows.cols.batch(batch_item), h = plan.rows.cols.head(batch_item);
  left_tile* const tiles = plan.left + tile * plan.left_tiles;
  if (is_plain(p)) {
    pack_row(place, seen, plain_row<Side>::of(p, b, h, row), r, plan.row_units[index], tiles);
  } else {
    pack_row(place, seen, any_row<Side>{p, b, h, row}, r, plan.row_units[index], tiles);
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
