// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/key_epilogue.cuh  dv and dk from the sums of a bfloat16 product: proof, the fold outside of windows,
/// the outputs.
///
///     dv[s] = e^k[s] A,  dk[s] = e^k[s] ((v[s] - m) A - B),  A = sum_t e^w e^-lse g,  B = sum_t e^w e^-lse g (o - m)
/// m is the column's centre: with 0 the two parts of dk would cancel where v and o lie far from 0.
#pragma once

#include "../fold/keys.cuh"
#include "../split_mma/keys.cuh"
#include "epilogue.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// A term below the normal numbers of its operands is lost: of a column at most 2^16 times 2^(exponent - 126), which at
/// this distance from the largest |g| is below 2^-50 of that.
inline constexpr float gemm_gradient_reach = 60.0f;
/// Finite weights below -number::range count as 0. With e^k e^-lse g up to here their terms are below the least number.
inline constexpr float gemm_gradient_most = 1000.0f;

/// From the sums of tiles alone, of a key that is not hidden. `first`: the first query that sees the key, as far as
/// there are queries. Without branches, which lanes with other keys would take too.
AFT_DEVICE key_gradient prove_key_tiles(int first, const query_column& at, float unit, const two_floats& pair,
                                        float key, float value) {
  key_gradient g{0.0f, 0.0f, true};
  const split_exp<float> k = exp_split(key);
  // The unit of a special row is NaN.
  const bool numbers = is_finite(unit) && is_finite(value);
  const bool clear = at.special == no_key, before = -at.special < first,
             in_range = magnitude(key) <= number<float>::range;
  const bool fits = (clear | before) & numbers & in_range;
  const bool nothing = (unit == no_exponent<float>) | (at.unit == no_exponent<float>);
  const float exponent = k.exponent + unit + at.unit;
  // Up before the values come in, so that small sums of small values are no denormal numbers on the way; down after,
  // in two steps, for a result among those.
  const float up = pow2<float>(larger(exponent, 0.0f));
  const float down = smaller(exponent, 0.0f);
  const float most = down < -120.0f ? -120.0f : down;
  const float a = pair.x[1] * up, apart = value - at.centre;
  const float difference = fused(apart, a, -(pair.x[0] * up * pow2<float>(at.value_unit)));
  const float dv = k.mantissa * a * pow2<float>(most) * pow2<float>(down - most);
  const float dk = k.mantissa * difference * pow2<float>(most) * pow2<float>(down - most);
  const bool ordinary = (apart == 0.0f) | (magnitude(apart) >= number<float>::least_value);
  const bool near_column =
      (exponent <= 120.0f) & (exponent - at.largest <= gemm_gradient_reach) & (at.value_unit >= -90.0f);
  const bool likely = k.exponent + at.unit <= gemm_gradient_most, finite = is_finite(dv) && is_finite(dk);
  g.dv = nothing ? 0.0f : dv;
  g.dk = nothing ? 0.0f : dk;
  g.proven = (nothing | (ordinary & near_column & likely & finite)) & fits;
  return g;
}

/// The first query that sees key s, as prove_key_tiles() takes it.
AFT_DEVICE int first_query_of(const device_call<float>& p, index_t s) {
  return p.causal ? static_cast<int>(clamp_to(s - p.diagonal, p.Tq)) : 0;
}

AFT_DEVICE key_gradient prove_key(const device_call<float>& p, const uniform_sums<query_sum<float>>& uniform,
                                  const tile_span& inner, const column& col, const query_column& at, index_t s,
                                  float unit, const two_floats& pair, float key, float value) {
  key_gradient g = prove_key_tiles(first_query_of(p, s), at, unit, pair, key, value);
  g.proven = g.proven && add_uniform_queries(uniform, inner, col, stage_logit(key), value, g.dv, g.dk);
  return g;
}

/// Keys [row, row + 8) of the block's tile in 32 of its channels, by one warp.
AFT_DEVICE void gemm_key_epilogue(const device_call<float>& p, const gemm_plan& plan,
                                  const uniform_sums<query_sum<float>>& uniform, const gemm_place& place,
                                  const gemm_sums& sums, int row, int lane_tile) {
  constexpr int n = gemm_sums::rows;
  const fold_plan& rows = plan.rows;
  const int lane = thread_index() % warp_size;
  const index_t column_tile = place.channel_tile * gemm_lane_tiles + lane_tile;
  if (column_tile >= rows.column_tiles) return;
  const column col = rows.cols.at(place.batch_item, column_tile * tuning::lanes + lane);
  const index_t stripe = place.batch_item * plan.channel_tiles + place.channel_tile;
  const query_column at = plan.query_columns[stripe * gemm_channels + lane_tile * tuning::lanes + lane];
  const float* const units = plan.row_units + (place.batch_item * plan.row_tiles + place.row_tile) * gemm_rows + row;
  const index_t s0 = place.first_row + row;
  const index_t rest = place.last_row - s0;
  const int exist = col.exists && rest > 0 ? static_cast<int>(min_of(rest, index_t{n})) : 0;
  static_assert(n == burst<float>);
  float key[n], value[n];
  key_column<float> keys;
  if (col.exists) keys = key_column<float>::of(p, col);
  keys.read(p, s0, 0, exist, key, value);

  const tile_span inner = tiles_of(window_queries_of(p, uniform, place.first_row, place.last_row));
  std::uint32_t flags = 0;
  tensor_column dk, dv;
  if (p.dk.set) dk = tensor_column::of(p.dk, col.b, col.c);
  if (p.dv.set) dv = tensor_column::of(p.dv, col.b, col.c);
  AFT_DEVICE_UNROLL
  for (int r = 0; r < n; ++r) {
    // A hidden key has gradients of 0.
    key_gradient g{0.0f, 0.0f, true};
    if (key[r] != -number<float>::infinity)
      g = prove_key(p, uniform, inner, col, at, s0 + r, units[r], sums.pair[r][lane], key[r], value[r]);
    const std::uint32_t word = ballot(r < exist && !g.proven);
    if (lane == r) flags = word;
    if (r >= exist || !g.proven) continue;
    if (p.dv.set) dv.write(p.dv, p.positions, s0 + r, g.dv);
    if (p.dk.set) dk.write(p.dk, p.positions, s0 + r, g.dk);
  }
  // Words of rows that do not exist, up to whole tiles of flags, are read too.
  const index_t first_flag = place.batch_item * rows.row_tiles * rows.column_tiles * fold_rows;
  if (lane < n && s0 + lane - rows.r0 < rows.row_tiles * fold_rows)
    rows.flags[first_flag + flag_word(rows, s0 + lane, column_tile)] = flags;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
