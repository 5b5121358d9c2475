// SPDX-License-Identifier: Apache-2.0
/// @file sparse/taps.cuh  The taps of a sparse filter as kernels take them: in order, with their exponentials, and with
/// what no host can check settled.
///
/// Taps lie in device memory, where a host cannot look at them without waiting for the stream. A tap that no call of
/// the host may have is therefore settled here: one that is ahead of a causal query, or beyond 2^61, reads nothing, and
/// one that is twice in a head has the weight NaN, so that rows which read through it are NaN.
#pragma once

#include "../fold/saved_rows.cuh"
#include "../scan/forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// One tap of one head.
template <class C>
struct device_tap {
  index_t x0, x1, x2;   ///< s - t on each axis; on a sequence with first_query in it
  index_t distance;     ///< the same in keys
  split_exp<C> weight;  ///< e^w as stage_logit has it
  split_exp<C> gain;    ///< e^w - 1, what a key weighs more than one without a tap
  C value;              ///< w
  index_t source;       ///< its number among the head's taps as the caller gave them
};

/// All taps, (heads, count); those of a head in the order of the keys that they read for any one row.
template <class C>
struct tap_table {
  const device_tap<C>* taps = nullptr;
  index_t heads = 0, count = 0;
  grid queries{}, keys{};

  AFT_DEVICE const device_tap<C>* of(index_t h) const { return taps + h * count; }
};

/// Whether a place lies on the grid.
AFT_DEVICE bool on_grid(const grid& g, index_t x0, index_t x1, index_t x2) {
  return x0 >= 0 && x0 < g.n0 && x1 >= 0 && x1 < g.n1 && x2 >= 0 && x2 < g.n2;
}

/// The key that row t, which is at the point `at`, reads through a tap; -1 if none.
template <class C>
AFT_DEVICE index_t tapped_key(const tap_table<C>& table, const device_tap<C>& tap, const point& at, index_t t) {
  return on_grid(table.keys, at.x0 + tap.x0, at.x1 + tap.x1, at.x2 + tap.x2) ? t + tap.distance : -1;
}

/// The row that reads key s, which is at the point `at`, through a tap; -1 if none.
template <class C>
AFT_DEVICE index_t tapping_row(const tap_table<C>& table, const device_tap<C>& tap, const point& at, index_t s) {
  return on_grid(table.queries, at.x0 - tap.x0, at.x1 - tap.x1, at.x2 - tap.x2) ? s - tap.distance : -1;
}

/// e^w - 1 to rounding; NaN where only the exact path will do.
template <class C>
AFT_DEVICE split_exp<C> stage_gain(C w) {
  if (w < -number<C>::range) return {C(-1), C(0)};
  if (!(w <= number<C>::range)) return {number<C>::nan, number<C>::nan};
  const exp_rest<C> e = exp_with_rest<C>(w);
  if (e.exponent == C(0)) return {e.rest, C(0)};
  // Far above 1 a difference of 1 is below rounding, and the number itself may be beyond the type.
  if (e.exponent > C(number<C>::mantissa_bits + 2)) return {C(1) + e.rest, e.exponent};
  return {fused(C(1) + e.rest, pow2<C>(e.exponent), C(-1)), C(0)};
}

/// The weight of a pair in a row, but for the row's inverse: from both exponentials where they are within range, since
/// the sum of two logits is known to half a unit of itself only. `weight` is e^w as stage_logit has it.
template <class C>
AFT_DEVICE C pair_weight(const saved_row<C>& u, C key, const split_exp<C>& weight, C w) {
  const split_exp<C> own = stage_logit(key);
  const C e = own.exponent + weight.exponent - u.exponent;
  if (e == e && u.base_hi == C(0) && u.base_lo == C(0)) return own.mantissa * weight.mantissa * pow2<C>(e);
  return exact_weight(u, key, w);
}

/// What the taps are made of.
struct tap_source {
  tap_list taps{};
  const std::byte* values = nullptr;
  dtype type = dtype::other;
  index_t values_sh = 0, values_st = 0;
  bool causal = false;
};

/// The offset on an axis, cut to what no key of the grid is away by.
AFT_DEVICE index_t read_offset(const tap_list& taps, index_t h, index_t tap, index_t axis, index_t beyond) {
  const index_t at = h * taps.sh + tap * taps.st + axis * taps.sa;
  const index_t x = taps.wide ? index_t{reinterpret_cast<const std::int64_t*>(taps.data)[at]}
                              : index_t{reinterpret_cast<const std::int32_t*>(taps.data)[at]};
  return x < -beyond ? -beyond : (x > beyond ? beyond : x);
}

/// Offsets of a tap on the axes of the grid. One that reads no key from any row is beyond the first axis.
template <class C>
AFT_DEVICE point place_tap(const tap_source& from, const tap_table<C>& table, index_t h, index_t tap) {
  constexpr index_t furthest = index_t{1} << 61;  // first_query is no further, so that sums do not overflow
  const tap_list& all = from.taps;
  const bool flat = table.keys.n0 == 1 && table.keys.n1 == 1;
  point x{0, 0, read_offset(all, h, tap, all.axes - 1, furthest + 1)};
  if (all.axes > 1) x.x1 = read_offset(all, h, tap, all.axes - 2, furthest + 1);
  if (all.axes > 2) x.x0 = read_offset(all, h, tap, 0, furthest + 1);
  bool reads = x.x2 <= furthest && x.x2 >= -furthest && !(from.causal && x.x2 > 0);
  if (flat) x.x2 += all.first_query;
  reads = reads && x.x0 > -table.queries.n0 && x.x0 < table.keys.n0 && x.x1 > -table.queries.n1 &&
          x.x1 < table.keys.n1 && x.x2 > -table.queries.n2 && x.x2 < table.keys.n2;
  return reads ? x : point{table.keys.n0, 0, 0};
}

AFT_DEVICE bool comes_before(const point& a, const point& b) {
  if (a.x0 != b.x0) return a.x0 < b.x0;
  return a.x1 != b.x1 ? a.x1 < b.x1 : a.x2 < b.x2;
}

inline constexpr int tap_table_threads = 128;

/// A tap a thread, which finds its own place by counting the taps before it.
template <class C>
AFT_KERNEL(tap_table_threads, 2)
tap_table_kernel(const AFT_PARAMETER tap_source from, const AFT_PARAMETER tap_table<C> table, device_tap<C>* to) {
  const index_t i = block_index() * tap_table_threads + thread_index();
  if (i >= table.heads * table.count) return;
  const index_t h = i / table.count;
  const index_t own = i % table.count;
  const point x = place_tap(from, table, h, own);
  const bool reads = x.x0 < table.keys.n0;
  index_t rank = 0;
  bool twice = false;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t j = 0; j < table.count; ++j) {
    const point other = place_tap(from, table, h, j);
    const bool after = comes_before(x, other);
    const bool same = !after && !comes_before(other, x);
    if (!after && (!same || j < own)) ++rank;
    twice = twice || (same && j != own && reads);
  }
  device_tap<C> tap;
  tap.x0 = x.x0;
  tap.x1 = x.x1;
  tap.x2 = x.x2;
  tap.distance = reads ? (x.x0 * table.keys.n1 + x.x1) * table.keys.n2 + x.x2 : 0;
  tap.value = load<C>(from.values, from.type, h * from.values_sh + own * from.values_st);
  if (twice) tap.value = number<C>::nan;
  tap.weight = stage_logit(tap.value);
  tap.gain = stage_gain(tap.value);
  tap.source = own;
  to[h * table.count + rank] = tap;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
