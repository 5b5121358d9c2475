// SPDX-License-Identifier: Apache-2.0
/// @file gemm_finish.cuh  What becomes of the sums of a bfloat16 product: proof, the fold outside of windows, the
/// outputs.
#pragma once

#include "gemm_tiles.cuh"

namespace aft {
inline namespace AFT_ISA {
namespace cuda_impl {

/// Sums of a warp on their way through shared memory: num and den of a pair meet in a thread's registers, and change
/// hands so that a warp has 32 channels of a row, which are whole lines to write and one word of flags.
struct gemm_sums {
  static constexpr int rows = 8;
  // Four channels more than there are: the rows that a warp writes at once then lie in different banks.
  two_floats pair[rows][tuning::lanes + 4];
};

/// The sums of a row in a column, as far as they are known. `shown`: the average of `sum` is the row's.
struct gemm_row {
  running_fold<float> sum;
  bool shown;
};

AFT_DEVICE gemm_row prove_row(const device_call<float>& p, const outer_folds<running_fold<float>>& outer,
                              const tile_span& near, const column& col, const gemm_column& at, index_t t, float unit,
                              const two_floats& pair) {
  gemm_row row{};
  const index_t last_seen = p.causal ? t : p.Tk;
  const bool fits = at.special > last_seen;
  // A row of the bias that is -inf sees no key, and a causal one none before the column's first.
  const bool empty = unit == no_exponent<float> || at.first > last_seen;
  if (!empty) {
    row.sum.num = pair.x[0];
    row.sum.den = pair.x[1];
    row.sum.top = unit + at.unit;
  }
  row.sum = with_outside(row.sum, outer, near, col.b, col.c);
  const bool nothing = empty && row.sum.den == 0.0f && row.sum.top == no_exponent<float>;
  // A unit that is NaN makes `top` NaN; sums of a special row are 0.
  row.shown = fits && is_finite(unit) && (nothing || (proven(row.sum) && row.sum.den >= gemm_least_den));
  return row;
}

/// The tiles of keys that a block has looked at, as folds outside of windows count them.
AFT_DEVICE tile_span near_tiles(const device_call<float>& p, const outer_folds<running_fold<float>>& outer,
                                const gemm_place& place) {
  return tiles_of(keys_of(p, outer, place.first_row, place.last_row));
}

/// Rows [row, row + 8) of the block's tile in 32 of its channels, by one warp.
AFT_DEVICE void finish_sums(const device_call<float>& p, const gemm_plan& plan,
                            const outer_folds<running_fold<float>>& outer, const gemm_place& place,
                            const gemm_sums& sums, int row, int lane_tile) {
  const fold_plan& rows = plan.rows;
  const int lane = thread_index() % warp_size;
  const index_t column_tile = place.channel_tile * gemm_lane_tiles + lane_tile;
  if (column_tile >= rows.column_tiles) return;
  const column col = rows.cols.at(place.instance, column_tile * tuning::lanes + lane);
  const gemm_column at = plan.columns[(place.instance * plan.channel_tiles + place.channel_tile) * gemm_channels +
                                      lane_tile * tuning::lanes + lane];
  const tile_span near = near_tiles(p, outer, place);
  const index_t flags = place.instance * rows.row_tiles * rows.column_tiles * fold_rows;
  AFT_UNROLL_BY(1)
  for (int r = 0; r < gemm_sums::rows; ++r) {
    const index_t t = place.first_row + row + r;
    if (t - rows.r0 >= rows.row_tiles * fold_rows) break;
    const bool wanted = col.exists && t < place.last_row;
    gemm_row found{};
    if (wanted) {
      const float unit = plan.row_units[(place.instance * plan.row_tiles + place.row_tile) * gemm_rows + row + r];
      found = prove_row(p, outer, near, col, at, t, unit, sums.pair[r][lane]);
    }
    const std::uint32_t word = ballot(wanted && !found.shown);
    if (lane == 0) rows.flags[flags + flag_word(rows, t, column_tile)] = word;
    if (!wanted || !found.shown) continue;
    row_result<float> result;
    result.average = average_of(found.sum);
    result.den = found.sum.den;
    result.exponent = found.sum.top;
    finish_row(p, col.b, t, col.c, result);
  }
}

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft
