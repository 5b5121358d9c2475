// SPDX-License-Identifier: Apache-2.0
/// @file fold/query_sum.cuh  What keys get from the queries that see them without a weight of their own for each pair.
///
///     dv[s] = e^k[s] A,  dk[s] = e^k[s] ((v[s] - m) A - B),  A = sum_t e^-lse[t] g[t],  B = sum_t e^-lse[t] g[t] (o[t]
///     - m)
/// over the queries t that see key s: all of them, or those from s on. m is a centre near the averages; with m = 0 the
/// two parts of dk would cancel where v[s] and o lie far from 0.
#pragma once

#include "../tensor/columns.cuh"
#include "saved_rows.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// A and B in units of 2^max.
template <class C>
struct query_sum {
  C a = C(0), b = C(0), max = no_exponent<C>;
  C centre = C(0);
};

/// Both sums around the centre of `to`.
template <class C>
AFT_DEVICE query_sum<C> merge(const query_sum<C>& to, const query_sum<C>& from) {
  query_sum<C> sum = to;
  sum.max = larger(to.max, from.max);
  const C left = pow2<C>(to.max - sum.max);
  const C right = pow2<C>(from.max - sum.max);
  // Nothing was added yet: its centre is no average, and may be far away.
  const C shift = from.a == C(0) && from.b == C(0) ? C(0) : from.centre - to.centre;
  sum.a = fused(to.a, left, from.a * right);
  sum.b = fused(to.b, left, fused(shift, from.a, from.b) * right);
  return sum;
}

/// Adds a query of a query_burst. A row with logits beyond the range makes the sums NaN.
template <class C>
AFT_DEVICE void add_query(C g, C o, C exponent, query_sum<C>& sum) {
  const C top = larger(sum.max, -exponent);
  const C scale = pow2<C>(sum.max - top);
  const C weight = pow2<C>(-exponent - top);
  sum.a = fused(sum.a, scale, g * weight);
  sum.b = fused(sum.b, scale, g * weight * (o - sum.centre));
  sum.max = top;
}

/// The fold one chunk or tile further on, around its centre: keys ahead have values like those near by.
template <class C>
AFT_DEVICE query_sum<C> carried(const query_sum<C>& sum, const query_sum<C>& next) {
  // The exponent of queries without a number is none either; their sum is NaN, and has to stay.
  return next.max == no_exponent<C> && next.a == C(0) ? sum : merge(next, sum);
}

/// Adds to dv and dk of a key what the folded queries give it; false where only the exact sums will do.
template <class C>
AFT_DEVICE bool add_queries(const query_sum<C>& sum, const split_exp<C>& weight, C value, C& dv, C& dk) {
  const C e = weight.exponent + sum.max;
  // A visible weight is at most 1; more than that is a sum that has lost its small terms below the normal numbers.
  if (!(e <= C(number<C>::mantissa_bits))) return false;
  const C factor = weight.mantissa * pow2<C>(e);
  dv = fused(factor, sum.a, dv);
  dk = fused(factor, fused(value - sum.centre, sum.a, -sum.b), dk);
  return is_finite(dv) && is_finite(dk);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
