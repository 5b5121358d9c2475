// SPDX-License-Identifier: Apache-2.0
/// @file math/half_sum.hpp  Sums of two logits that neither overflow nor lose a bit: halves, in two parts.
#pragma once

#include "exp_weight.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// hi + lo = a/2 + b/2 exactly (Knuth's two-sum), the sum of two logits that cannot overflow.
template <class C>
struct half_sum {
  vec<C> hi;
  vec<C> lo;
  AFT_RETURNED_IN_PLACE
};
template <class C>
inline half_sum<C> add_halves(const vec<C>& a, const vec<C>& b) {
  const vec<C> half(C(0.5));
  const vec<C> x = a * half;
  const vec<C> y = b * half;
  const vec<C> hi = x + y;
  const vec<C> back = hi - x;
  return {hi, (x - (hi - back)) + (y - back)};
}

/// x - y, hi being the rounded difference of the first parts. Where that leaves the range there is no rest.
template <class C>
inline half_sum<C> subtract(const half_sum<C>& x, const half_sum<C>& y) {
  const vec<C> hi = x.hi - y.hi;
  const vec<C> back = hi - x.hi;
  const vec<C> lost = (x.hi - (hi - back)) - (y.hi + back);
  const auto finite = (xsimd::abs)(hi) <= vec<C>(exp_constants<C>::largest);
  return {hi, xsimd::select(finite, lost, vec<C>(C(0))) + (x.lo - y.lo)};
}

/// 2 (base_hi + base_lo) + log(x * 2^shift). A base of -2050 beside a shift of 2^2945 leaves -9, which must not be
/// rounded as if it were 2050; nor twice, for a backward call takes it for rounded once: so the first half of n ln 2,
/// which is exact, joins the base, and what that rounds away joins the rest. `excess` is that of the base in which x is
/// a sum of weights. Where the base is 0 the bits are those of log_shifted, lane by lane: neighbours may be of other
/// batch elements.
template <class C>
inline vec<C> log_from_base(const half_sum<C>& base, const vec<C>& x, const vec<C>& shift, C excess = C(0)) {
  const split_log<C> log = log_parts<C>(x, shift);
  const vec<C> half(C(0.5)), two(C(2));
  const vec<C> size = log.n * vec<C>(exp_constants<C>::ln2_hi * C(0.5));
  const auto based = differs<C>(base.hi, vec<C>(C(0)));
  if (!xsimd::any(based)) return two * mul_add(log.part, half, size);
  const half_sum<C> sum = subtract<C>(base, {-size, -(log.part * half)});
  const vec<C> more = xsimd::select(based, vec<C>(-excess), vec<C>(C(0)));
  return two * (sum.hi + mul_add(size, more, sum.lo));
}

}  // namespace aft::inline AFT_ISA::cpu_impl
