// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/pack_query_lines.cuh  gemm_queries_kernel for a lse and averages that are lines of float.
#pragma once

#include "line_place.cuh"
#include "pack_queries.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// What is known of four channels of a lane's queries.
struct line_queries {
  line_column g, o, lse;

  template <class C>
  AFT_DEVICE static line_queries of(const device_call<C>& p, const column& col, index_t t0) {
    const C* const g = p.g + (col.b * p.Tq + t0) * p.d + col.c;
    return {{reinterpret_cast<const std::byte*>(g), p.d * 4},
            line_column::of(p.average, 4, col.b, t0, col.c),
            line_column::of(p.lse, 4, col.b, t0, col.c)};
  }
};

/// gemm_query::of() where `ordinary` stays: the leading bit of a normal number is read and not searched for.
AFT_DEVICE gemm_query pack_ordinary(float g, float o, float lse, const query_column& own, float scale, bool& ordinary) {
  const split_exp<float> e = exp_split(-lse);
  const float x = g * e.mantissa;
  const bool weight = magnitude(lse) <= number<float>::range;
  const bool lower = magnitude(x) >= 0x1p-126f, upper = magnitude(x) < 0x1p126f;
  const bool finite = is_finite(o);
  ordinary = ordinary & weight & lower & upper & finite;
  const std::uint32_t bits = to_bits(x);
  const float size = static_cast<float>(static_cast<int>(bits >> number<float>::mantissa_bits & 0xffu)) - 126.0f;
  const float mantissa = from_bits<float>((bits & 0x807fffffu) | to_bits(0.5f));
  gemm_query packed;
  packed.den = float_to_bfloat16(mantissa * pow2<float>(size + e.exponent - own.unit));
  packed.num = float_to_bfloat16(bfloat16_to_float(packed.den) * ((o - own.centre) * scale));
  return packed;
}

/// One query after the other, for lanes that have one that is no ordinary number, or is padding.
template <class C>
AFT_DEVICE void pack_each_query(const device_call<C>& p, const line_place& at, const column& col, int turn,
                                query_column* own, std::byte* tile) {
  const index_t t0 = at.first_position();
  const line_queries rows = line_queries::of(p, col, t0);
  const index_t seeing = col.exists ? length_of(p.query_lengths, col.b, p.Tq) - t0 : 0;
  AFT_DEVICE_UNROLL_BY(1)
  for (int n = 0; n < line_channels * line_positions; ++n) {
    const int j = n / line_positions, i = n % line_positions;
    gemm_query x;
    if (i < seeing) {
      saved_row<float> u{};
      set_weights(rows.lse.template read<float>(i, 4 * j), u);
      u.g = rows.g.template read<float>(i, 4 * j);
      u.o = rows.o.template read<float>(i, 4 * j);
      float g = 0.0f, o = 0.0f, exponent = 0.0f;
      weigh_row(u, g, o, exponent);
      x = gemm_query::of(g, o, exponent, own[j], pow2<float>(-own[j].value_unit));
    }
    store_one(tile, at.channel(turn) + j, at.chunk, i, x.num, x.den);
    if (x.is_special) lower_to(&own[j].special, -(static_cast<int>(t0) + i));
  }
}

template <class C>
AFT_KERNEL(gemm_keys_threads, 3)
gemm_query_lines_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan) {
  const line_place at = line_place::of(plan);
  if (!at.exists(plan)) return;
  std::byte* const tile = at.target(plan);
  const index_t t0 = at.first_position();
  AFT_DEVICE_UNROLL_BY(1)
  for (int turn = 0; turn < line_turns; ++turn) {
    const column col = at.column_of(plan, turn);
    query_column* const own = plan.query_columns + at.of_columns(plan, turn);
    bool ordinary = col.exists && length_of(p.query_lengths, col.b, p.Tq) - t0 >= line_positions;
    line_chunks packed;
    if (ordinary) {
      const line_queries rows = line_queries::of(p, col, t0);
      query_column units[line_channels];
      AFT_DEVICE_UNROLL
      for (int j = 0; j < line_channels; ++j) units[j] = own[j];
      AFT_DEVICE_UNROLL
      for (int i = 0; i < line_positions / 2; ++i) {
        gemm_query x[2][line_channels];
        AFT_DEVICE_UNROLL
        for (int h = 0; h < 2; ++h) {
          const auto g = rows.g.template read<four_floats>(2 * i + h), o = rows.o.template read<four_floats>(2 * i + h),
                     lse = rows.lse.template read<four_floats>(2 * i + h);
          AFT_DEVICE_UNROLL
          for (int j = 0; j < line_channels; ++j)
            x[h][j] = pack_ordinary(g.x[j], o.x[j], lse.x[j], units[j], pow2<float>(-units[j].value_unit), ordinary);
        }
        AFT_DEVICE_UNROLL
        for (int j = 0; j < line_channels; ++j) {
          packed.num[j].x[i] = two_halves(x[0][j].num, x[1][j].num);
          packed.den[j].x[i] = two_halves(x[0][j].den, x[1][j].den);
        }
      }
    }
    if (ordinary) {
      packed.copy_out(tile, at, turn);
    } else {
      pack_each_query(p, at, col, turn, own, tile);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
