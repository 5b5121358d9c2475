// SPDX-License-Identifier: Apache-2.0
/// @file exact_key.hpp  The gradients of one key by their definition, for lanes whose fast result is not proven.
#pragma once

#include "tuning.hpp"
#include "upstream.hpp"
#include "weights.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// A weight a = mantissa 2^exponent. Apart, since a alone may underflow where its product with a large g or v need not.
template <class C>
struct exact_factor {
  vec<C> mantissa, exponent;

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
    // In the base of the other factors; what may be infinite lies beyond the range anyway.
    const vec<C> excess = max_ignoring_nan<C>(x, vec<C>(C(-4) * exp_constants<C>::range)) * vec<C>(base_excess<C>);
    const vec<C> rest = mul_add(difference.lo, vec<C>(C(2)), excess);
    const vec<C> relative = mul_add(exponent, vec<C>(-exp_constants<C>::ln2_lo), row + rest);
    // Visible logits do not exceed their row's maximum but by its rounding; NaN stays.
    const vec<C> cap(C(8));
    const vec<C> low = xsimd::select(relative < -range, -range, relative);
    const split_exp<C> e = exp_split<C>(xsimd::select(low > cap, cap, low));
    a.mantissa = xsimd::select(within, a.mantissa, e.mantissa * inverse);
    a.exponent = xsimd::select(within, a.exponent, e.exponent);
  }
  return a;
}

/// dv and dk of key s for the lanes of `tile` (design: dv = sum_t a g, dk = sum_t a g (v - o)).
template <class C>
[[gnu::noinline]] inline void exact_key(const gradient_inputs& in, const pair_weights<C>& weights,
                                        const lane_tile<C>& tile, index_t s, const vec<C>& key, const vec<C>& value,
                                        C* dv, C* dk) {
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const backward_problem& p = *in.p;
  upstream<C, chunk> up;
  C w[chunk];
  const vec<C> zero(C(0));
  vec<C> a_sum(zero), b_sum(zero), a_block(zero), b_block(zero);
  for (index_t t0 = 0; t0 < p.Tq; t0 += chunk) {
    const index_t t1 = t0 + chunk < p.Tq ? t0 + chunk : p.Tq;
    weights.columns(s, s + 1, t0, t1, w, chunk);
    up.read(in, tile, t0, t1);
    for (index_t t = 0; t < t1 - t0; ++t) {
      if (w[t] == -inf) continue;
      const vec<C> inverse = load(up.inverse + t * L);
      const exact_factor<C> a = exact_weight<C>(key, vec<C>(w[t]), inverse, load(up.exponent + t * L),
                                                load(up.base_hi + t * L), load(up.base_lo + t * L));
      const auto empty = inverse == zero;
      const vec<C> g = load(up.g + t * L);
      a_block = a_block + xsimd::select(empty, zero, a.times(g));
      b_block = b_block + xsimd::select(empty, zero, a.times_difference(g, value, load(up.o + t * L)));
    }
    if (t1 % tuning<C>::depth_block == 0 || t1 == p.Tq) {
      a_sum = a_sum + a_block;
      b_sum = b_sum + b_block;
      a_block = zero;
      b_block = zero;
    }
  }
  const auto hidden = key == vec<C>(-inf);
  store(dv, xsimd::select(hidden, zero, a_sum));
  store(dk, xsimd::select(hidden, zero, b_sum));
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
