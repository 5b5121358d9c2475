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

/// As std::integral_constant, which device code may not use everywhere.
template <gate g>
struct chosen_gate {
  static constexpr gate value = g;
};

/// A row's average in a column. `shown`: it is proven.
struct gemm_row {
  float average;
  bool shown;
};

AFT_DEVICE gemm_row prove_row(const device_call<float>& p, const outer_folds<running_fold<float>>& outer,
                              const tile_span& near, const column& col, const gemm_column& at, index_t t, float unit,
                              const two_floats& pair) {
  running_fold<float> sum;
  const index_t last_seen = p.causal ? t : p.Tk;
  const bool fits = at.special > last_seen;
  // A row of the bias that is -inf sees no key, and a causal one none before the column's first.
  const bool empty = unit == no_exponent<float> || at.first > last_seen;
  if (!empty) {
    sum.num = pair.x[0];
    sum.den = pair.x[1];
    sum.top = unit + at.unit;
  }
  if (outer.used) sum = with_outside(sum, outer, near, col.b, col.c);
  const bool nothing = empty && sum.den == 0.0f && sum.top == no_exponent<float>;
  // The unit of a special row is NaN, and its sums are 0.
  const bool shown = fits && is_finite(unit) && (nothing || (proven(sum) && sum.den >= gemm_least_den));
  return {average_of(sum), shown};
}

/// out *= gate(q), with one look at which gate it is.
template <int n>
AFT_DEVICE void apply_gate(gate g, const float (&q)[n], float (&out)[n]) {
  const auto all = [&](auto which) {
    AFT_UNROLL
    for (int i = 0; i < n; ++i) out[i] *= gate_value<float>(decltype(which)::value, q[i]);
  };
  switch (g) {
    case gate::none: return;
    case gate::identity: return all(chosen_gate<gate::identity>{});
    case gate::sigmoid: return all(chosen_gate<gate::sigmoid>{});
    case gate::relu: return all(chosen_gate<gate::relu>{});
    case gate::tanh: return all(chosen_gate<gate::tanh>{});
    case gate::silu: return all(chosen_gate<gate::silu>{});
  }
}

/// Rows [row, row + 8) of the block's tile in 32 of its channels, by one warp: no lse and no state, which these calls
/// do not ask for. All reads come first and all rows together, so that a warp waits once.
AFT_DEVICE void finish_sums(const device_call<float>& p, const gemm_plan& plan,
                            const outer_folds<running_fold<float>>& outer, const gemm_place& place,
                            const gemm_sums& sums, int row, int lane_tile) {
  constexpr int n = gemm_sums::rows;
  const fold_plan& rows = plan.rows;
  const int lane = thread_index() % warp_size;
  const index_t column_tile = place.channel_tile * gemm_lane_tiles + lane_tile;
  if (column_tile >= rows.column_tiles) return;
  const column col = rows.cols.at(place.instance, column_tile * tuning::lanes + lane);
  const index_t stripe = place.instance * plan.channel_tiles + place.channel_tile;
  const gemm_column at = plan.columns[stripe * gemm_channels + lane_tile * tuning::lanes + lane];
  const float* const units = plan.row_units + (place.instance * plan.row_tiles + place.row_tile) * gemm_rows + row;
  const index_t t0 = place.first_row + row;
  const bool gated = p.y.set && p.gate_fn != gate::none;
  float unit[n], q[n], out[n];
  bool wanted[n];
  AFT_UNROLL
  for (int r = 0; r < n; ++r) {
    wanted[r] = col.exists && t0 + r < place.last_row;
    unit[r] = units[r];
    q[r] = wanted[r] && gated ? load<float>(p.q, p.positions, col.b, t0 + r, col.c) : 0.0f;
  }

  const tile_span near = tiles_of(keys_of(p, outer, place.first_row, place.last_row));
  std::uint32_t flags = 0;
  AFT_UNROLL
  for (int r = 0; r < n; ++r) {
    gemm_row found{0.0f, false};
    if (wanted[r]) found = prove_row(p, outer, near, col, at, t0 + r, unit[r], sums.pair[r][lane]);
    const std::uint32_t word = ballot(wanted[r] && !found.shown);
    if (lane == r) flags = word;
    wanted[r] = wanted[r] && found.shown;
    out[r] = found.average;
  }
  // Words of rows that do not exist, up to whole tiles of flags, are read too.
  const index_t first_flag = place.instance * rows.row_tiles * rows.column_tiles * fold_rows;
  if (lane < n && t0 + lane - rows.r0 < rows.row_tiles * fold_rows)
    rows.flags[first_flag + flag_word(rows, t0 + lane, column_tile)] = flags;

  if (p.average.set) {
    AFT_UNROLL
    for (int r = 0; r < n; ++r)
      if (wanted[r]) store<float>(p.average, p.positions, col.b, t0 + r, col.c, out[r]);
  }
  if (!p.y.set) return;
  apply_gate(p.gate_fn, q, out);
  // y may be q itself: every element has been read by the thread that writes it.
  AFT_UNROLL
  for (int r = 0; r < n; ++r)
    if (wanted[r]) store<float>(p.y, p.positions, col.b, t0 + r, col.c, out[r]);
}

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft
