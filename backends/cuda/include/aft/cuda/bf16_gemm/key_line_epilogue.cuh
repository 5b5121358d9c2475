// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/key_line_epilogue.cuh  gemm_key_epilogue for k, v, dk and dv in lines of bfloat16: a lane has eight
/// channels of a key.
#pragma once

#include "key_epilogue.cuh"
#include "line_epilogue.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Without a mask.
AFT_DEVICE void key_line_epilogue(const device_call<float>& p, const gemm_plan& plan,
                                  const uniform_sums<query_sum<float>>& uniform, const gemm_place& place,
                                  gemm_sums& sums, int row, int lane_tile) {
  constexpr int n = wide_channels;
  const line_row at = line_row::of(plan, place, row, lane_tile);
  if (at.column_tile >= plan.rows.column_tiles) return;
  const index_t b = at.col.b, c = at.col.c, s = at.t;
  float dk[n] = {}, dv[n] = {};
  // A hidden key has gradients of 0.
  std::uint32_t shown = all_channels;
  if (at.exists && s < length_of(p.lengths, b, p.Tk)) {
    const auto keys = load_words<four_words>(line_at(p.k, b, s, c)),
               values = load_words<four_words>(line_at(p.v, b, s, c));
    const float unit = at.unit(plan, place, row);
    const query_column* const columns = plan.query_columns + at.of_columns;
    two_floats* const pairs = &sums.pair[at.row][at.group * n];
    const int first = first_query_of(p, s);
    AFT_DEVICE_UNROLL
    for (int j = 0; j < n; ++j) {
      const float key = bfloat16_of(keys, j), value = bfloat16_of(values, j);
      const bool hidden = key == -number<float>::infinity;
      const key_gradient g = prove_key_tiles(first, columns[j], unit, pairs[j], key, value);
      dv[j] = hidden ? 0.0f : g.dv;
      dk[j] = hidden ? 0.0f : g.dk;
      shown &= g.proven || hidden ? ~0u : ~(1u << j);
    }
    if (uniform.used) {
      // Through the sums' own place, as a register cannot be named by a number that is not known.
      const tile_span inner = tiles_of(window_queries_of(p, uniform, place.first_row, place.last_row));
      AFT_DEVICE_UNROLL
      for (int j = 0; j < n; ++j) pairs[j] = {{dv[j], dk[j]}};
      AFT_DEVICE_UNROLL_BY(1)
      for (int j = 0; j < n; ++j) {
        const float key = load<float>(line_at(p.k, b, s, c), dtype::bf16, j);
        const float value = load<float>(line_at(p.v, b, s, c), dtype::bf16, j);
        if (key == -number<float>::infinity || (shown >> j & 1u) == 0) continue;
        two_floats& g = pairs[j];
        if (!add_uniform_queries(uniform, inner, {b, c + j, true}, stage_logit(key), value, g.x[0], g.x[1]))
          shown -= 1u << j;
      }
      AFT_DEVICE_UNROLL
      for (int j = 0; j < n; ++j) {
        dv[j] = pairs[j].x[0];
        dk[j] = pairs[j].x[1];
      }
    }
  }
  at.flag(plan, place, shown);
  if (!at.exists) return;
  if (p.dv.set) store_line(line_at(p.dv, b, s, c), dtype::bf16, dv, shown);
  if (p.dk.set) store_line(line_at(p.dk, b, s, c), dtype::bf16, dk, shown);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
