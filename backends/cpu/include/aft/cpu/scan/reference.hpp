// SPDX-License-Identifier: Apache-2.0
/// @file scan/reference.hpp  What sums of weights are relative to: 2^exponent e^base, and the value's power of two.
#pragma once

#include <limits>

#include "../math/exp_weight.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Sums in a reference stand for sum * 2^exponent * e^base. `base` is 0 unless a key beyond exp_constants::range came:
/// then it is the real maximum, and weights are exp(k - base). Everything else is scaled by powers of two, which do not
/// round, so the bits of a sum do not depend on where the maximum stood.
template <class C>
struct reference {
  vec<C> base;
  vec<C> exponent;
  AFT_RETURNED_IN_PLACE
};

/// Exponent of a sum without terms: below that of every key in range by more than any weight survives, and above
/// that of `underflow clamp` by as much, so that hidden keys get weight 0 without a test.
template <class C>
inline constexpr C empty_exponent = C(-16000);

/// Arguments of exp are cut here. 16384 / ln 2 < 2^15, times the 9 bits of ln2_hi it is still exact.
template <class C>
inline constexpr C underflow_clamp = C(-16384);

/// Two sums brought into one reference: multiply by `first` and `second`. Both are powers of two where the bases are 0.
template <class C>
struct joined {
  reference<C> common;
  vec<C> first;
  vec<C> second;
};

/// Out of line: needed for |k| > 4096 only. Gives the same bits as join_near where both bases are 0.
template <class C>
[[gnu::noinline]] joined<C> join_far(const reference<C>& a, const reference<C>& b) {
  const vec<C> zero(C(0));
  const auto a_empty = a.exponent == vec<C>(empty_exponent<C>);
  const auto b_empty = b.exponent == vec<C>(empty_exponent<C>);
  // Which top is higher need not be known better than to a few units.
  const vec<C> apart = mul_add(a.exponent - b.exponent, vec<C>(C(0.6931)), a.base - b.base);
  const auto a_leads = (!a_empty) & (b_empty | !(apart < zero));
  joined<C> out;
  out.common.base = xsimd::select(a_leads, a.base, b.base);
  out.common.exponent = xsimd::select(a_leads, a.exponent, b.exponent);
  // Where this difference matters the two are within a factor of two of each other, or one is 0: it is exact.
  vec<C> step = xsimd::select(a_leads, b.base - a.base, a.base - b.base);
  step = xsimd::select(step < vec<C>(underflow_clamp<C>), vec<C>(underflow_clamp<C>), step);
  step = xsimd::select(step > vec<C>(-underflow_clamp<C>), vec<C>(-underflow_clamp<C>), step);
  // In the base of the weights: one sum may be of weights e^k themselves, and is then 4096 and more away from the
  // other.
  const split_exp<C> e = exp_weight_whole<C>(step);
  const vec<C> j = e.exponent + xsimd::select(a_leads, b.exponent - a.exponent, a.exponent - b.exponent);
  const auto nothing = (a_leads & b_empty) | ((!a_leads) & a_empty);
  const vec<C> most(C(100));
  const vec<C> factor = xsimd::select(nothing, zero, times_pow2<C>(e.mantissa, xsimd::select(j > most, most, j)));
  const vec<C> one(C(1));
  out.first = xsimd::select(a_leads, one, factor);
  out.second = xsimd::select(a_leads, factor, one);
  return out;
}

template <class C>
inline joined<C> join(const reference<C>& a, const reference<C>& b) {
  const vec<C> zero(C(0));
  if (xsimd::any(differs<C>(a.base, zero) | differs<C>(b.base, zero))) return join_far<C>(a, b);
  const vec<C> e = xsimd::select(a.exponent > b.exponent, a.exponent, b.exponent);
  const vec<C> one(C(1));
  return {{zero, e}, times_pow2<C>(one, a.exponent - e), times_pow2<C>(one, b.exponent - e)};
}

/// The key up to which weights in an exponent's reference stay below 2; beyond it, or beyond the range, the reference
/// moves.
template <class C>
inline vec<C> highest_key(const vec<C>& exponent) {
  const vec<C> range(exp_constants<C>::range);
  const vec<C> k = exponent * vec<C>(C(0.693147180559945309));
  return xsimd::select(k > range, range, k);
}

/// The same for the steps of a key, see exp_steps; and how far from 0 these are that are sure to be in range.
template <class C>
inline constexpr C far_step = C(5908);
template <class C>
inline vec<C> highest_step(const vec<C>& exponent) {
  const vec<C> range(far_step<C>);
  return xsimd::select(exponent > range, range, exponent) + vec<C>(step_zero<C>);
}

/// Keys of this size and below are no higher than that either, and their weights are normal numbers: see exp_near.
template <class C>
inline vec<C> nearest_keys(const vec<C>& exponent) {
  const vec<C> reach(exp_constants<C>::bias - C(7));
  const vec<C> up = exponent - vec<C>(C(1));
  const vec<C> down = reach - exponent;
  return xsimd::select(up < down, up, down) * vec<C>(C(0.6931));
}

/// Whether values need no scale when the largest of them is `peak`.
template <class C>
inline vec_mask<C> ordinary_peak(const vec<C>& peak) {
  return (peak == vec<C>(C(0))) |
         ((peak >= vec<C>(scan_tuning<C>::value_low)) & (peak <= vec<C>(scan_tuning<C>::value_high)));
}

/// The exponent that values are divided by when the largest of them is `peak`: 0 for all ordinary ones. Only for
/// extreme values would a sum overflow, or lose to underflow what a row that sees nothing larger must keep.
template <class C>
inline vec<C> value_shift(const vec<C>& peak) {
  using k = exp_constants<C>;
  const vec<C> zero(C(0));
  vec<C> e = exponent_bits<C>(peak);
  // 2^e and 2^-e must both be normal.
  const vec<C> most(k::bias - C(1));
  e = xsimd::select(e > most, most, xsimd::select(e < -most, -most, e));
  return xsimd::select(ordinary_peak<C>(peak), zero, e);
}

/// The largest finite |v| so far.
template <class C>
inline vec<C> raise_peak(const vec<C>& peak, const vec<C>& v) {
  const vec<C> a = (xsimd::abs)(v);
  return xsimd::select((a > peak) & (a <= vec<C>(exp_constants<C>::largest)), a, peak);
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
