// SPDX-License-Identifier: Apache-2.0
/// @file fold/exact.cuh  One row by the definition: the joint maximum of k + w over the keys it sees, then the sums.
///
/// Taken for the rows and lanes that a fold has flagged. A lane reads everything it needs itself: rows like this are
/// rare, or the data are at the ends of their type.
#pragma once

#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// A pair as the exact sums see it.
template <class C>
struct exact_pair {
  C key, weight;
  bool seen, within;  ///< within number<C>::range, so that exponents can be added
};

template <class C>
AFT_DEVICE exact_pair<C> read_pair(const device_call<C>& p, index_t b, index_t h, index_t c, index_t t, index_t s) {
  exact_pair<C> x{};
  x.weight = visible_weight(p, b, h, t, s);
  x.key = x.weight == -number<C>::infinity ? x.weight : load_key(p, b, s, c);
  x.seen = x.key != -number<C>::infinity;
  // A NaN fails every comparison, so "not within" also catches it.
  x.within = magnitude(x.key) <= number<C>::range && magnitude(x.weight) <= number<C>::range;
  return x;
}

/// The largest weight that a row has: as a power of two, and as half of a logit for rows beyond the range.
template <class C>
struct row_maximum {
  C top = no_exponent<C>;
  C hi = -number<C>::infinity, lo = C(0);
  C value = C(0);  ///< the largest finite |v|
  bool tainted = false, beyond = false;

  AFT_DEVICE void add(const exact_pair<C>& x, C v) {
    beyond = beyond || !x.within;
    const half_sum<C> z = add_halves<C>(x.key, x.weight);
    const bool ordinary = is_finite(z.hi);
    tainted = tainted || !ordinary;
    if (ordinary && (z.hi > hi || (z.hi == hi && z.lo > lo))) {
      hi = z.hi;
      lo = z.lo;
    }
    if (x.within) top = larger(top, exp_split<C>(x.key).exponent + exp_split<C>(x.weight).exponent);
    if (is_finite(v)) value = larger(value, magnitude(v));
  }
};

template <class C>
AFT_DEVICE row_result<C> exact_row(const device_call<C>& p, index_t b, index_t h, index_t c, index_t t) {
  const span keys = keys_of(p, t, t + 1);
  row_maximum<C> most;
  for (index_t s = keys.lo; s < keys.hi; ++s) {
    const exact_pair<C> x = read_pair(p, b, h, c, t, s);
    if (x.seen) most.add(x, load<C>(p.v, p.positions, b, s, c));
  }
  row_result<C> result;
  if (most.tainted) {
    result.average = result.den = number<C>::nan;
    return result;
  }
  // Guard bits keep num below max |v| and den below 1 for any number of keys, so nothing overflows.
  C guard = C(2);
  for (index_t n = 1; n < p.Tk; n *= 2) guard += C(1);
  const C lift = value_exponent(most.value);
  const C scale = pow2<C>(-lift);
  C num = C(0), den = C(0);
  // Cut where the fold cuts, so that long sums round no worse than there.
  for (index_t s0 = keys.lo / tuning::depth * tuning::depth; s0 < keys.hi; s0 += tuning::depth) {
    C part_num = C(0), part_den = C(0);
    for (index_t s = max_of(s0, keys.lo); s < s0 + tuning::depth && s < keys.hi; ++s) {
      const exact_pair<C> x = read_pair(p, b, h, c, t, s);
      if (!x.seen) continue;
      C factor;
      if (most.beyond) {
        const half_sum<C> z = add_halves<C>(x.key, x.weight);
        factor = exp_scaled<C>(C(2) * ((z.hi - most.hi) + (z.lo - most.lo)), guard);
      } else {
        const split_exp<C> k = exp_split<C>(x.key);
        const split_exp<C> w = exp_split<C>(x.weight);
        factor = k.mantissa * w.mantissa * pow2<C>(k.exponent + w.exponent - most.top - guard);
      }
      part_num = fused(factor, load<C>(p.v, p.positions, b, s, c) * scale, part_num);
      part_den += factor;
    }
    num += part_num;
    den += part_den;
  }
  if (den == C(0)) return result;
  // The average lies in the hull of the values; where rounding carries it past the largest number it is put back.
  const C ratio = num / den;
  C average = ratio * pow2<C>(lift);
  if (is_finite(ratio) && !is_finite(average)) average = ratio > C(0) ? most.value : -most.value;
  result.average = average;
  result.den = den;
  result.exponent = guard + (most.beyond ? C(0) : most.top);
  result.base_hi = most.beyond ? most.hi : C(0);
  result.base_lo = most.beyond ? most.lo : C(0);
  return result;
}

template <class C>
AFT_KERNEL(exact_threads, 2)
exact_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER fold_plan plan) {
  visit_flagged(plan, [&](const flagged_place& at) {
    row_epilogue(p, at.col.b, at.row, at.col.c, exact_row(p, at.col.b, at.head, at.col.c, at.row));
  });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
