// SPDX-License-Identifier: Apache-2.0
/// @file gemm_left.cuh  exp(w) as the left operand of the bfloat16 product.
#pragma once

#include "gemm_tiles.cuh"
#include "stage.cuh"

namespace aft {
inline namespace AFT_ISA {
namespace cuda_impl {

inline constexpr int gemm_left_warps = 8;
inline constexpr int gemm_left_threads = gemm_left_warps * warp_size;

/// A row of w, whose place in memory is worked out once where w lies there pair by pair.
struct weight_row {
  const std::byte* plain = nullptr;
  index_t b, h, t;

  AFT_DEVICE static weight_row of(const device_call<float>& p, index_t b, index_t h, index_t t) {
    weight_row row{nullptr, b, h, t};
    if (!is_plain(p)) return row;
    const matrix& w = p.bias.w;
    const index_t at = (p.bias.batched ? b : 0) * w.sb + h * w.sh + (t - p.bias.row) * w.sr - p.bias.column * w.sc;
    row.plain = w.data + at * (w.type == dtype::f32 ? 4 : 2);
    return row;
  }
  /// No pair mask and no excluding window: what hides a pair of the row is its end.
  AFT_DEVICE float at(const device_call<float>& p, index_t s) const {
    if (plain == nullptr) return weight(p, b, h, t, s);
    return load<float>(plain, p.bias.w.type, s * p.bias.w.sc);
  }
};

/// A warp packs a row, a lane two neighbouring keys. Reads w twice, once for the largest.
template <class C>
AFT_KERNEL(gemm_left_threads, 4)
gemm_left_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan,
                 const AFT_PARAMETER outer_folds<running_fold<C>> outer) {
  const index_t index = block_index() * gemm_left_warps + thread_index() / warp_size;
  if (index >= plan.left_rows()) return;
  const int lane = thread_index() % warp_size;
  const index_t tile_index = index / gemm_rows;
  const int r = static_cast<int>(index % gemm_rows);
  const index_t instance = tile_index / plan.row_tiles;
  const gemm_place place = gemm_place::of_rows(p, outer, plan, instance, tile_index - instance * plan.row_tiles, 0);
  const index_t t = place.first_row + r;
  const span keys = keys_of(p, outer, place.first_row, place.last_row);
  index_t end = p.causal && t < keys.hi ? t + 1 : keys.hi;
  if (t >= place.last_row) end = keys.lo;
  const weight_row row = weight_row::of(p, plan.rows.cols.batch(instance), plan.rows.cols.head(instance), t);

  float largest = -number<float>::infinity;
  bool special = false;
  AFT_UNROLL_BY(1)
  for (index_t s0 = place.begin * index_t{gemm_depth} + 2 * lane; s0 < end; s0 += gemm_depth) AFT_UNROLL
  for (int j = 0; j < 2; ++j) {
    const index_t s = s0 + j;
    if (s < keys.lo || s >= end) continue;
    const float w = row.at(p, s);
    special = special || (w != -number<float>::infinity && !(magnitude(w) <= number<float>::range));
    largest = larger(largest, w);
  }
  AFT_UNROLL
  for (int mask = 1; mask < warp_size; mask *= 2) largest = larger(largest, shuffle_xor(largest, mask));
  const bool out = ballot(special) != 0;
  const float unit = out ? number<float>::nan : stage_logit(largest).exponent;
  if (out) end = keys.lo;
  if (lane == 0) plan.row_units[index] = unit;
  const index_t first_tile = tile_index * plan.left_tiles;
  AFT_UNROLL_BY(1)
  for (int tile = place.begin; tile < place.end; ++tile) {
    std::uint16_t x[2];
    AFT_UNROLL
    for (int j = 0; j < 2; ++j) {
      const index_t s = tile * index_t{gemm_depth} + 2 * lane + j;
      const bool exists = s >= keys.lo && s < end;
      const split_exp<float> e = stage_logit(exists ? row.at(p, s) : -number<float>::infinity);
      x[j] = float_to_bfloat16(e.mantissa > 0.0f ? e.mantissa * pow2<float>(e.exponent - unit) : 0.0f);
    }
    std::byte* const to = plan.left[first_tile + (tile - place.begin)].operand + chunk_at(r, lane / 4) + lane % 4 * 4;
    *reinterpret_cast<std::uint32_t*>(to) = two_halves(x[0], x[1]);
  }
}

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft
