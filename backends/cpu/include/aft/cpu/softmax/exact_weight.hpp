// SPDX-License-Identifier: Apache-2.0
/// @file softmax/exact_weight.hpp  One attention weight a = exp(k + w - lse) from the row state, in range and exponent
/// apart.
#pragma once

#include "../math/half_sum.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// A weight a = mantissa 2^exponent. Apart, since a alone may underflow where its product with a large g or v need not.
template <class C>
struct exact_factor {
  vec<C> mantissa, exponent;
  AFT_RETURNED_IN_PLACE

  /// a x
  vec<C> times(const vec<C>& x) const {
    const vec<C> product = mantissa * x;
    const auto fits = (xsimd::abs)(product) <= vec<C>(exp_constants<C>::largest);
    return xsimd::select(fits, raise<C>(product, exponent), raise<C>(mantissa, exponent) * x);
  }
  /// a g d
  vec<C> times(const vec<C>& g, const vec<C>& d) const {
    const vec<C> product = g * d;
    const auto fits = (xsimd::abs)(product) <= vec<C>(exp_constants<C>::largest);
    return xsimd::select(fits, times(product), times(g) * d);
  }
  /// a g (x - y)
  vec<C> times_difference(const vec<C>& g, const vec<C>& x, const vec<C>& y) const {
    const vec<C> product = times(g, x - y), half(C(0.5));
    const auto beyond = difference_overflows<C>(x, y);
    if (!xsimd::any(beyond)) return product;
    return xsimd::select(beyond, times(g, x * half - y * half) * vec<C>(C(2)), product);
  }
};

/// a[t,s,c] = exp(k + w - lse) from the row state, with any logits. `weight` and `key` are w and k.
template <class C>
inline exact_factor<C> exact_weight(const vec<C>& key, const vec<C>& weight, const vec<C>& inverse,
                                    const vec<C>& exponent, const vec<C>& base_hi, const vec<C>& base_lo) {
  const vec<C> zero(C(0));
  const vec<C> range(exp_constants<C>::range);
  const auto within = ((xsimd::abs)(key) <= range) && ((xsimd::abs)(weight) <= range) && (base_hi == zero);
  const split_exp<C> ek = exp_weight_whole<C>(xsimd::select(within, key, zero));
  const split_exp<C> ew = exp_weight_whole<C>(xsimd::select(within, weight, zero));
  exact_factor<C> a{ek.mantissa * ew.mantissa * inverse, (ek.exponent + ew.exponent) - exponent};
  if (!xsimd::all(within)) {
    const half_sum<C> z = add_halves<C>(key, weight);
    // The base is that of a whole column, hundreds above what an early row sees: their difference alone would be
    // rounded to units of its own size, each of which is a relative error of the weight. So its rest joins after the
    // row's sum has taken the size away.
    const half_sum<C> difference = subtract<C>(z, {base_hi, base_lo});
    const vec<C> x = vec<C>(C(2)) * difference.hi;
    // Relative to the row before it is cut: beside a row far below 0 the end of exp's range is no small number.
    const vec<C> row = mul_add(exponent, vec<C>(-exp_constants<C>::ln2_hi), x);
    // In the base of the other factors, the rest too: beside huge keys all of w is in it. What may be infinite lies
    // beyond the range anyway.
    const vec<C> two(C(2)), whole = mul_add(difference.lo, two, x);
    const vec<C> excess = max_ignoring_nan<C>(whole, vec<C>(C(-4) * exp_constants<C>::range)) * vec<C>(base_excess<C>);
    const vec<C> sum = mul_add(difference.lo, two, row);
    const vec<C> relative = mul_add(exponent, vec<C>(-exp_constants<C>::ln2_lo), sum) + excess;
    // Visible logits do not exceed their row's maximum but by its rounding; NaN stays.
    const vec<C> cap(C(8));
    const vec<C> low = xsimd::select(relative < -range, -range, relative);
    const split_exp<C> e = exp_split<C>(xsimd::select(low > cap, cap, low));
    a.mantissa = xsimd::select(within, a.mantissa, e.mantissa * inverse);
    a.exponent = xsimd::select(within, a.exponent, e.exponent);
  }
  return a;
}

/// a g and a g (v - o) of one pair; both 0 where it is hidden or the row sees no key, whatever v and o hold there.
/// `rows` has what a backward pass knows of its queries, see saved_rows.
template <class C>
struct pair_gradient_terms {
  vec<C> dv, dk;
  AFT_RETURNED_IN_PLACE
};
template <class C, class Rows>
inline pair_gradient_terms<C> exact_pair_terms(const Rows& rows, index_t t, const vec<C>& key, const vec<C>& weight,
                                               const vec<C>& value) {
  const index_t at = t * lanes<C>;
  const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
  const vec<C> inverse = load(rows.inverse + at), g = load(rows.g + at);
  const exact_factor<C> a =
      exact_weight<C>(key, weight, inverse, load(rows.exponent + at), load(rows.base_hi + at), load(rows.base_lo + at));
  const auto nothing = (inverse == zero) || (key == hidden) || (weight == hidden);
  return {xsimd::select(nothing, zero, a.times(g)),
          xsimd::select(nothing, zero, a.times_difference(g, value, load(rows.o + at)))};
}

}  // namespace aft::inline AFT_ISA::cpu_impl
