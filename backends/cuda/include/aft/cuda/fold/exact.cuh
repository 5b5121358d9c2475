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

/// A key of weight w, -inf where the pair is hidden: then nothing of the key is read.
template <class C>
AFT_DEVICE exact_pair<C> read_pair(const device_call<C>& p, index_t b, index_t c, index_t s, C w) {
  exact_pair<C> x{};
  x.weight = w;
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

/// A row by its pairs: pairs.each(visit) calls visit(s, w) for its keys in their order, and is asked twice.
template <class C, class Pairs>
AFT_DEVICE row_result<C> exact_row_of(const device_call<C>& p, index_t b, index_t c, const Pairs& pairs) {
  row_maximum<C> most;
  pairs.each([&](index_t s, C w) {
    const exact_pair<C> x = read_pair(p, b, c, s, w);
    if (x.seen) most.add(x, load<C>(p.v, p.positions, b, s, c));
  });
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
  C num = C(0), den = C(0), part_num = C(0), part_den = C(0);
  index_t end = 0;  // of the part
  pairs.each([&](index_t s, C w) {
    const exact_pair<C> x = read_pair(p, b, c, s, w);
    if (!x.seen) return;
    // Cut where the fold cuts, so that long sums round no worse than there.
    if (s >= end) {
      num += part_num;
      den += part_den;
      part_num = part_den = C(0);
      end = (s / tuning::depth + 1) * tuning::depth;
    }
    C factor;
    if (most.beyond) {
      const half_sum<C> z = add_halves<C>(x.key, x.weight);
      factor = exp_scaled<C>(C(2) * ((z.hi - most.hi) + (z.lo - most.lo)), guard);
    } else {
      const split_exp<C> k = exp_split<C>(x.key);
      const split_exp<C> weight = exp_split<C>(x.weight);
      factor = k.mantissa * weight.mantissa * pow2<C>(k.exponent + weight.exponent - most.top - guard);
    }
    part_num = fused(factor, load<C>(p.v, p.positions, b, s, c) * scale, part_num);
    part_den += factor;
  });
  num += part_num;
  den += part_den;
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

/// The pairs of one row under any bias that is stored.
template <class C>
struct row_pairs {
  const device_call<C>& p;
  index_t b, h, t;

  template <class Visit>
  AFT_DEVICE void each(const Visit& visit) const {
    const span keys = keys_of(p, t, t + 1);
    for (index_t s = keys.lo; s < keys.hi; ++s) visit(s, visible_weight(p, b, h, t, s));
  }
};

template <class C>
AFT_DEVICE row_result<C> exact_row(const device_call<C>& p, index_t b, index_t h, index_t c, index_t t) {
  return exact_row_of(p, b, c, row_pairs<C>{p, b, h, t});
}

template <class C>
AFT_KERNEL(exact_threads, 2)
exact_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER fold_plan plan) {
  visit_flagged(plan, [&](const flagged_place& at) {
    row_epilogue(p, at.col.b, at.row, at.col.c, exact_row(p, at.col.b, at.head, at.col.c, at.row));
  });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
