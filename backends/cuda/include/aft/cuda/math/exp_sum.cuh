// SPDX-License-Identifier: Apache-2.0
/// @file math/exp_sum.cuh  num and den of a row in a column, in units of the largest power of two of a weight.
#pragma once

#include <aft/math/exp_sum.hpp>

#include "arithmetic.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The sums of one row, in units of 2^max instead of e^max: a power of two, so that a change of units does not round.
template <class C>
struct key_sum : exp_sum<C> {
  C largest = C(0);  ///< of |v| over what the row sees

  AFT_HOST_DEVICE key_sum() : exp_sum<C>{no_exponent<C>, C(0), C(0)} {}
};

/// The sums over the keys of both. One product of each sum is fused: not aft::merge, which leaves that to the compiler.
template <class C>
AFT_DEVICE key_sum<C> merge(const key_sum<C>& a, const key_sum<C>& b) {
  key_sum<C> sum;
  sum.max = larger(a.max, b.max);
  const C a_unit = pow2<C>(a.max - sum.max);
  const C b_unit = pow2<C>(b.max - sum.max);
  sum.num = fused(a.num, a_unit, b.num * b_unit);
  sum.den = fused(a.den, a_unit, b.den * b_unit);
  sum.largest = larger(a.largest, b.largest);
  return sum;
}

/// The fold one chunk or tile further on.
template <class C>
AFT_DEVICE key_sum<C> carried(const key_sum<C>& sum, const key_sum<C>& next) {
  return merge(sum, next);
}

template <class C>
AFT_DEVICE C average_of(const key_sum<C>& sum) {
  return sum.den > C(0) ? sum.num / sum.den : C(0);
}

/// Sums and average are finite, and nothing that counts was lost below the normal numbers. A den that is NaN makes the
/// average 0, so it is asked apart.
template <class C>
AFT_DEVICE bool proven(const key_sum<C>& sum) {
  return is_finite(sum.den) && is_finite(sum.num) && is_finite(average_of(sum)) &&
         (sum.largest == C(0) || sum.largest >= number<C>::least_value);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
