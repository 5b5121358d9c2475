// SPDX-License-Identifier: Apache-2.0
/// @file math/exp_sum.cuh  num and den of a row in a column, in units of the largest power of two of a weight.
#pragma once

#include "arithmetic.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The sums of one row, in units of 2^top.
template <class C>
struct key_sum {
  C num = C(0), den = C(0), top = no_exponent<C>;
  C largest = C(0);  ///< of |v| over what the row sees
};

/// Both sums in units of the larger power of two.
template <class C>
AFT_DEVICE key_sum<C> merge(const key_sum<C>& a, const key_sum<C>& b) {
  key_sum<C> sum;
  sum.top = larger(a.top, b.top);
  const C left = pow2<C>(a.top - sum.top);
  const C right = pow2<C>(b.top - sum.top);
  sum.num = fused(a.num, left, b.num * right);
  sum.den = fused(a.den, left, b.den * right);
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
