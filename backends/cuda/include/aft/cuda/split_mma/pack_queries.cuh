// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/pack_queries.cuh  e^-lse g o and e^-lse g as operand tiles: the right side of the product that gives
/// dk and dv.
#pragma once

#include "../fold/saved_rows.cuh"
#include "pack_keys.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The size of e^-lse g as a power of two; NaN where only the exact weight will do.
AFT_DEVICE float query_exponent(const staged_query<float>& q) {
  return value_exponent(magnitude(q.g)) - q.exponent;
}

/// Like pack_keys_kernel: depth is queries, den e^-lse g, num that times o, and `largest` the largest |o|.
template <class Operand>
AFT_KERNEL(pack_threads, 4)
pack_queries_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pack_plan plan, const index_t count) {
  const index_t index = block_index() * pack_warps + thread_index() / warp_size;
  if (index >= count) return;
  const int lane = thread_index() % warp_size;
  const index_t stripe = index / plan.key_tiles;
  const index_t t0 = (index - stripe * plan.key_tiles) * tuning::depth;
  const index_t batch_item = stripe / plan.column_tiles;
  const column col = plan.cols.at(batch_item, (stripe - batch_item * plan.column_tiles) * tuning::lanes + lane);
  packed_tile& tile = plan.tiles[index];

  float exponent = no_exponent<float>, largest = 0.0f;
  for (int i = 0; i < tuning::depth && col.exists && t0 + i < p.Tq; ++i) {
    const staged_query<float> q = stage_query(p, col.b, t0 + i, col.c);
    if (q.g != 0.0f) exponent = larger(exponent, query_exponent(q));
    largest = larger(largest, magnitude(q.o));
  }
  const float unit = value_exponent(largest);
  const float scale = pow2<float>(-unit);
  AFT_DEVICE_UNROLL_BY(1)
  for (int group = 0; group < tuning::depth / 4; ++group) {
    float num[4], den[4];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      num[i] = den[i] = 0.0f;
      const index_t t = t0 + group * 4 + i;
      if (!col.exists || t >= p.Tq) continue;
      const staged_query<float> q = stage_query(p, col.b, t, col.c);
      const float own = query_exponent(q);
      if (q.g != 0.0f) {
        const float mantissa = q.g * pow2<float>(-value_exponent(magnitude(q.g)));
        den[i] = own == own ? Operand::rounded(mantissa * pow2<float>(own - exponent + Operand::shift)) : own;
      }
      num[i] = den[i] * (q.o * scale);
    }
    Operand::store(tile.operand, 2 * lane, group, num);
    Operand::store(tile.operand, 2 * lane + 1, group, den);
  }
  tile.exponent[lane] = exponent;
  tile.value_unit[lane] = pow2<float>(unit);
  tile.largest[lane] = largest;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
