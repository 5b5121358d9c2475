// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/pack_key_lines.cuh  gemm_keys_kernel for keys and values that are lines of bfloat16.
#pragma once

#include "line_place.cuh"
#include "pack_keys.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// One key after the other, for lanes that have one that is hidden or does not fit.
template <class C>
AFT_DEVICE void pack_each_key(const device_call<C>& p, const line_place& at, const column& col, int turn, index_t rest,
                              gemm_column* own, std::byte* tile) {
  const index_t s0 = at.first_position();
  const line_column keys = line_column::of(p.k, 2, col.b, s0, col.c),
                    values = line_column::of(p.v, 2, col.b, s0, col.c);
  AFT_DEVICE_UNROLL_BY(1)
  for (int n = 0; n < line_channels * line_positions; ++n) {
    const int j = n / line_positions, i = n % line_positions;
    gemm_key x;
    if (i < rest) {
      const float value = bfloat16_to_float(values.template read<std::uint16_t>(i, 2 * j));
      x = gemm_key::of(bfloat16_to_float(keys.template read<std::uint16_t>(i, 2 * j)), value, own[j].unit);
    }
    store_one(tile, at.channel(turn) + j, at.chunk, i, x.num, x.den);
    if (x.special) lower_to(&own[j].special, static_cast<int>(s0) + i);
  }
}

/// Without a mask.
template <class C>
AFT_KERNEL(gemm_keys_threads, 4)
gemm_key_lines_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan) {
  const line_place at = line_place::of(plan);
  if (!at.exists(plan)) return;
  std::byte* const tile = at.target(plan);
  const index_t s0 = at.first_position();
  AFT_DEVICE_UNROLL_BY(1)
  for (int turn = 0; turn < line_turns; ++turn) {
    const column col = at.column_of(plan, turn);
    const index_t rest = col.exists ? length_of(p.lengths, col.b, p.Tk) - s0 : 0;
    gemm_column* const own = plan.columns + at.of_columns(plan, turn);
    bool ordinary = rest >= line_positions;
    line_chunks packed;
    if (ordinary) {
      const line_column keys = line_column::of(p.k, 2, col.b, s0, col.c),
                        values = line_column::of(p.v, 2, col.b, s0, col.c);
      four_halves key[line_positions], value[line_positions];
      AFT_DEVICE_UNROLL
      for (int i = 0; i < line_positions; ++i) {
        key[i] = keys.template read<four_halves>(i);
        value[i] = values.template read<four_halves>(i);
      }
      AFT_DEVICE_UNROLL
      for (int j = 0; j < line_channels; ++j) {
        gemm_key x[line_positions];
        const float unit = own[j].unit;
        AFT_DEVICE_UNROLL
        for (int i = 0; i < line_positions; ++i) {
          const float k = bfloat16_of(key[i], j), v = bfloat16_of(value[i], j);
          const split_exp<float> e = exp_split(k);
          ordinary &= gemm_key::ordinary(k, e, v, unit);
          x[i] = gemm_key::packed(e, v, unit);
        }
        AFT_DEVICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          packed.num[j].x[i] = two_halves(x[2 * i].num, x[2 * i + 1].num);
          packed.den[j].x[i] = two_halves(x[2 * i].den, x[2 * i + 1].den);
        }
      }
    }
    if (ordinary) {
      packed.copy_out(tile, at, turn);
    } else {
      pack_each_key(p, at, col, turn, rest, own, tile);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
