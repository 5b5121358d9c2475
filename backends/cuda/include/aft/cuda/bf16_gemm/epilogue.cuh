// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/epilogue.cuh  What becomes of the sums of a bfloat16 product: proof, the fold outside of windows,
/// the outputs.
#pragma once

#include "tiles.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Sums of a warp on their way through shared memory: num and den of a pair meet in a thread's registers, and change
/// hands so that a warp has 32 channels of a row, which are whole lines to write and one word of flags.
struct gemm_sums {
  static constexpr int rows = 8;
  // Four channels more than there are: the rows that a warp writes at once then lie in different banks.
  alignas(chunk_bytes) two_floats pair[rows][tuning::lanes + 4];
};

/// A row's sums in a column. `shown`: they are proven.
struct gemm_row {
  row_result<float> sums{};
  bool shown = false;
};

/// What a row sees of a column.
struct gemm_sight {
  int last_seen;  ///< the key, as far as there are keys
  float unit;     ///< of the row

  AFT_DEVICE static gemm_sight of(const device_call<float>& p, index_t t, float unit) {
    const index_t last = p.causal && t + p.diagonal < p.Tk ? t + p.diagonal : p.Tk;
    return {static_cast<int>(last < 0 ? -1 : last), unit};
  }
  /// The unit of a special row is NaN, and its sums are 0.
  AFT_DEVICE bool fits(const gemm_column& at) const { return at.special > last_seen && is_finite(unit); }
  /// A row of the bias that is -inf sees no key, and a causal one none before the column's first.
  AFT_DEVICE bool empty(const gemm_column& at) const { return unit == no_exponent<float> || at.first > last_seen; }
};

/// From the sums of tiles alone, which are finite: all operands are, and small enough.
AFT_DEVICE gemm_row prove_tiles(const gemm_sight& sight, const gemm_column& at, const two_floats& pair) {
  const bool empty = sight.empty(at);
  gemm_row row;
  // Without a branch around the quotient, which what it reads would be drawn into.
  const float num = empty ? 0.0f : pair.x[0], den = empty ? 1.0f : pair.x[1];
  row.sums.average = quick_quotient(num, den);
  row.sums.den = empty ? 0.0f : den;
  row.sums.exponent = sight.unit + at.unit;
  row.shown = sight.fits(at) && den >= gemm_least_den;
  return row;
}

/// And from what lies outside of windows.
AFT_DEVICE gemm_row prove_joined(const uniform_sums<key_sum<float>>& uniform, const tile_span& inner, index_t b,
                                 index_t c, const gemm_sight& sight, const gemm_column& at, const two_floats& pair) {
  const bool empty = sight.empty(at);
  key_sum<float> sum;
  if (!empty) {
    sum.num = pair.x[0];
    sum.den = pair.x[1];
    sum.max = sight.unit + at.unit;
  }
  sum = with_uniform_keys(sum, uniform, inner, b, c);
  const bool nothing = empty && sum.den == 0.0f && sum.max == no_exponent<float>;
  gemm_row row;
  row.sums.average = average_of(sum);
  row.sums.den = sum.den;
  row.sums.exponent = sum.max;
  row.shown = sight.fits(at) && (nothing || (proven(sum) && sum.den >= gemm_least_den));
  return row;
}

AFT_DEVICE gemm_row prove_row(const device_call<float>& p, const uniform_sums<key_sum<float>>& uniform,
                              const tile_span& inner, const column& col, const gemm_column& at, index_t t, float unit,
                              const two_floats& pair) {
  gemm_row padding;
  padding.shown = true;
  if (is_padding(p, col.b, t)) return padding;
  const gemm_sight sight = gemm_sight::of(p, t, unit);
  return uniform.used ? prove_joined(uniform, inner, col.b, col.c, sight, at, pair) : prove_tiles(sight, at, pair);
}

/// The lse of sums that bfloat16 operands have: they move it by less than 2^-6
/// (docs/adr/0012-bfloat16-products-cuda.md).
AFT_DEVICE float short_log_sum(const row_result<float>& r) {
  constexpr float ln2 = 0.693147181f;
  return r.den > 0.0f ? (quick_log2(r.den) + r.exponent) * ln2 : -number<float>::infinity;
}

/// gate(q) for a result in bfloat16.
template <gate g>
AFT_DEVICE float short_gate(float q) {
  if constexpr (g == gate::sigmoid || g == gate::silu) {
    const float e = quick_exp(-magnitude(q));
    const float s = quick_quotient(q < 0.0f ? e : 1.0f, 1.0f + e);
    if constexpr (g == gate::sigmoid) return s;
    return s == 0.0f ? 0.0f : q * s;  // guards -inf * 0
  } else {
    return gate_value<float>(g, q);
  }
}
template <gate g, int n>
AFT_DEVICE void apply_one(const float (&q)[n], float (&out)[n]) {
  AFT_DEVICE_UNROLL
  for (int i = 0; i < n; ++i) out[i] *= short_gate<g>(q[i]);
}
/// out *= gate(q), with one look at which gate it is.
template <int n>
AFT_DEVICE void apply_gate(gate g, const float (&q)[n], float (&out)[n]) {
  switch (g) {
    case gate::none: return;
    case gate::identity: return apply_one<gate::identity>(q, out);
    case gate::sigmoid: return apply_one<gate::sigmoid>(q, out);
    case gate::relu: return apply_one<gate::relu>(q, out);
    case gate::tanh: {
      // Long, and rare: one copy of the code.
      float factor[n];
      one_by_one(q, factor, [](float x) { return short_gate<gate::tanh>(x); });
      AFT_DEVICE_UNROLL
      for (int i = 0; i < n; ++i) out[i] *= factor[i];
      return;
    }
    case gate::silu: return apply_one<gate::silu>(q, out);
  }
}

/// Element (b, t + r, c) of a bfloat16 tensor for r < n: places first, so that they are worked out once for a sequence.
template <int n>
struct row_places {
  index_t at[n];

  AFT_DEVICE static row_places of(const tensor& x, const grid& positions, const column& col, index_t t) {
    row_places rows;
    if (positions.n0 == 1 && positions.n1 == 1) {
      const index_t first = col.b * x.sb + t * x.s2 + col.c * x.sc;
      AFT_DEVICE_UNROLL
      for (int r = 0; r < n; ++r) rows.at[r] = first + r * x.s2;
    } else {
      AFT_DEVICE_UNROLL
      for (int r = 0; r < n; ++r) rows.at[r] = row_offset(x, positions, col.b, t + r) + col.c * x.sc;
    }
    return rows;
  }
};

/// Rows [row, row + 8) of the block's tile in 32 of its channels, by one warp: no state, which these calls do not ask
/// for, and q and y in bfloat16. All reads come first and all rows together, so that a warp waits once.
AFT_DEVICE void gemm_epilogue(const device_call<float>& p, const gemm_plan& plan,
                              const uniform_sums<key_sum<float>>& uniform, const gemm_place& place,
                              const gemm_sums& sums, int row, int lane_tile) {
  constexpr int n = gemm_sums::rows;
  const fold_plan& rows = plan.rows;
  const int lane = thread_index() % warp_size;
  const index_t column_tile = place.channel_tile * gemm_lane_tiles + lane_tile;
  if (column_tile >= rows.column_tiles) return;
  const column col = rows.cols.at(place.batch_item, column_tile * tuning::lanes + lane);
  const index_t stripe = place.batch_item * plan.channel_tiles + place.channel_tile;
  const gemm_column at = plan.columns[stripe * gemm_channels + lane_tile * tuning::lanes + lane];
  const float* const units = plan.row_units + (place.batch_item * plan.row_tiles + place.row_tile) * gemm_rows + row;
  const index_t t0 = place.first_row + row;
  const int exist = col.exists && t0 < place.last_row ? static_cast<int>(place.last_row - t0) : 0;
  const bool gated = p.y.set && p.gate_fn != gate::none;
  float unit[n], q[n], out[n];
  {
    const auto* const from = reinterpret_cast<const std::uint16_t*>(p.q.data);
    const auto places = row_places<n>::of(p.q, p.positions, col, t0);
    AFT_DEVICE_UNROLL
    for (int r = 0; r < n; ++r) {
      unit[r] = units[r];
      // Of padding q may be no number, and y is 0 all the same.
      q[r] = r < exist && gated && !is_padding(p, col.b, t0 + r) ? bfloat16_to_float(from[places.at[r]]) : 0.0f;
    }
  }

  const tile_span inner = tiles_of(window_keys_of(p, uniform, place.first_row, place.last_row));
  const index_t shared_by = quotient(p.d, p.hk);
  const index_t lse_channel = p.lse.set ? quotient(col.c, shared_by) : 0;
  const bool has_lse = p.lse.set && col.c == lse_channel * shared_by;
  std::uint32_t flags = 0;
  bool shown[n];
  AFT_DEVICE_UNROLL
  for (int r = 0; r < n; ++r) {
    gemm_row found;
    if (r < exist) found = prove_row(p, uniform, inner, col, at, t0 + r, unit[r], sums.pair[r][lane]);
    const std::uint32_t word = ballot(r < exist && !found.shown);
    if (lane == r) flags = word;
    shown[r] = found.shown;
    out[r] = found.sums.average;
    if (has_lse && found.shown) store<float>(p.lse, p.positions, col.b, t0 + r, lse_channel, short_log_sum(found.sums));
  }
  // Words of rows that do not exist, up to whole tiles of flags, are read too.
  const index_t first_flag = place.batch_item * rows.row_tiles * rows.column_tiles * fold_rows;
  if (lane < n && t0 + lane - rows.r0 < rows.row_tiles * fold_rows)
    rows.flags[first_flag + flag_word(rows, t0 + lane, column_tile)] = flags;

  if (p.average.set) {
    AFT_DEVICE_UNROLL
    for (int r = 0; r < n; ++r)
      if (shown[r]) store<float>(p.average, p.positions, col.b, t0 + r, col.c, out[r]);
  }
  if (!p.y.set) return;
  apply_gate(p.gate_fn, q, out);
  // y may be q itself: every element has been read by the thread that writes it.
  auto* const to = reinterpret_cast<std::uint16_t*>(p.y.data);
  const auto places = row_places<n>::of(p.y, p.positions, col, t0);
  AFT_DEVICE_UNROLL
  for (int r = 0; r < n; ++r)
    if (shown[r]) to[places.at[r]] = float_to_bfloat16(out[r]);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
