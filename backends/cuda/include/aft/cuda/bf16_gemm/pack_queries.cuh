// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/pack_queries.cuh  [e^-lse g (o - m) | e^-lse g] as the right operand of the product that gives dk
/// and dv.
#pragma once

#include "../scan/keys.cuh"
#include "pack_keys.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// A query of a query_burst, as an operand; `special` where it cannot be one.
struct gemm_query {
  static constexpr float empty = -no_exponent<float>;
  std::uint16_t num = 0, den = 0;
  bool is_special = false;

  AFT_DEVICE static bool special(float g, float o, float exponent) {
    return !is_finite(g) || !is_finite(o) || exponent != exponent;
  }
  /// e^-lse |g| as a power of two.
  AFT_DEVICE static float size(float g, float exponent) { return value_exponent(magnitude(g)) - exponent; }

  /// In the units of its column.
  AFT_DEVICE static gemm_query of(float g, float o, float exponent, const query_column& own, float scale) {
    gemm_query x;
    if (exponent == empty) return x;
    x.is_special = special(g, o, exponent);
    if (x.is_special || g == 0.0f) return x;
    const float size = value_exponent(magnitude(g));
    x.den = float_to_bfloat16(g * pow2<float>(-size) * pow2<float>(size - exponent - own.unit));
    x.num = float_to_bfloat16(bfloat16_to_float(x.den) * ((o - own.centre) * scale));
    return x;
  }
};

inline constexpr int query_column_warps = 8;

struct query_column_buffers {
  float unit[query_column_warps][tuning::lanes], largest[query_column_warps][tuning::lanes];
  average_range<float> averages[query_column_warps][tuning::lanes];
};

/// A block has 32 columns, of which each warp looks at every eighth burst of queries.
template <class C, class Access = any_layout>
AFT_KERNEL(query_column_warps* warp_size, 2)
query_columns_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan) {
  query_column_buffers& parts = shared<query_column_buffers>();
  const int warp = thread_index() / warp_size, lane = thread_index() % warp_size;
  const index_t i = block_index() * tuning::lanes + lane;
  const index_t batch_item = i / (plan.channel_tiles * gemm_channels);
  const column col = plan.rows.cols.at(batch_item, i - batch_item * plan.channel_tiles * gemm_channels);
  float unit = no_exponent<float>, largest = no_exponent<float>;
  average_range<float> averages;
  if (col.exists) {
    const auto rows = saved_column<float, Access>::of(p, col);
    AFT_DEVICE_UNROLL_BY(1)
    for (index_t t = warp * burst<float>; t < p.Tq; t += query_column_warps * burst<float>) {
      query_burst<float> q;
      rows.read(p, t, 0, part_of_burst<float>(p.Tq - t), q);
      AFT_DEVICE_UNROLL
      for (int j = 0; j < burst<float>; ++j) {
        if (q.exponent[j] == gemm_query::empty || gemm_query::special(q.g[j], q.o[j], q.exponent[j])) continue;
        averages.add({q.o[j], q.o[j]});
        if (q.g[j] == 0.0f) continue;
        unit = larger(unit, gemm_query::size(q.g[j], q.exponent[j]));
        largest = larger(largest, value_exponent(magnitude(q.g[j])));
      }
    }
  }
  parts.unit[warp][lane] = unit;
  parts.largest[warp][lane] = largest;
  parts.averages[warp][lane] = averages;
  sync();
  if (warp != 0) return;
  for (int w = 1; w < query_column_warps; ++w) {
    unit = larger(unit, parts.unit[w][lane]);
    largest = larger(largest, parts.largest[w][lane]);
    averages.add(parts.averages[w][lane]);
  }
  const float centre = averages.centre();
  const float spread = averages.low > averages.high ? 0.0f : larger(averages.high - centre, centre - averages.low);
  // The spread is finite: the centre is 0 or the average nearest to it.
  plan.query_columns[i] = {unit, largest, centre, spread > 0.0f ? value_exponent(spread) : 0.0f, no_key};
}

/// Like gemm_keys_kernel, with queries for keys.
template <class C>
AFT_KERNEL(gemm_keys_threads, 4)
gemm_queries_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan) {
  packed_right& packed = shared<packed_right>();
  const packed_place at = packed_place::of(plan);
  if (!at.exists(plan)) return;
  query_column& own = plan.query_columns[at.of_columns];
  const query_column units = own;
  const float scale = pow2<float>(-units.value_unit);
  std::byte* const tile = packed.tiles[at.lane_tile].operand;
  saved_column<float> rows;
  if (at.col.exists) rows = saved_column<float>::of(p, at.col);
  int special = no_key;
  constexpr int queries = chunk_bytes / 2;
  static_assert(queries == burst<float>);
  AFT_DEVICE_UNROLL_BY(1)
  for (int chunk = 0; chunk < gemm_depth / queries; ++chunk) {
    const index_t t = at.tile * gemm_depth + chunk * queries;
    query_burst<float> q;
    rows.read(p, t, 0, at.col.exists ? part_of_burst<float>(max_of(p.Tq - t, index_t{0})) : 0, q);
    std::uint16_t num[queries], den[queries];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < queries; ++i) {
      const gemm_query x = gemm_query::of(q.g[i], q.o[i], q.exponent[i], units, scale);
      num[i] = x.num;
      den[i] = x.den;
      if (x.is_special) special = -static_cast<int>(t + i);
    }
    four_words nums, dens;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      nums.x[i] = two_halves(num[2 * i], num[2 * i + 1]);
      dens.x[i] = two_halves(den[2 * i], den[2 * i + 1]);
    }
    *reinterpret_cast<four_words*>(tile + chunk_at(2 * at.lane, chunk)) = nums;
    *reinterpret_cast<four_words*>(tile + chunk_at(2 * at.lane + 1, chunk)) = dens;
  }
  packed.copy_out(at.lane_tile, at.target(plan));
  if (special != no_key) lower_to(&own.special, special);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
