// SPDX-License-Identifier: Apache-2.0
/// @file exact_key.hpp  The gradients of one key by their definition, for lanes whose fast result is not proven.
#pragma once

#include "tuning.hpp"
#include "upstream.hpp"
#include "weights.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// a[t,s,c] = exp(k + w - lse) from the row state, with any logits. `factor` and `key` are w and k.
template <class C>
inline vec<C> exact_weight(const vec<C>& key, const vec<C>& weight, const vec<C>& inverse, const vec<C>& exponent,
                           const vec<C>& base_hi, const vec<C>& base_lo) {
  const vec<C> zero(C(0));
  const vec<C> range(exp_constants<C>::range);
  const auto within = (xsimd::abs(key) <= range) && (xsimd::abs(weight) <= range) && (base_hi == zero);
  const split_exp<C> ek = exp_split<C>(xsimd::select(within, key, zero));
  const split_exp<C> ew = exp_split<C>(xsimd::select(within, weight, zero));
  vec<C> a = raise<C>(ek.mantissa * ew.mantissa * inverse, (ek.exponent + ew.exponent) - exponent);
  if (!xsimd::all(within)) {
    const half_sum<C> z = add_halves<C>(key, weight);
    const vec<C> x = vec<C>(C(2)) * ((z.hi - base_hi) + (z.lo - base_lo));
    // Visible logits do not exceed their row's maximum but by its rounding; NaN stays.
    const vec<C> cap = mul_add(exponent, vec<C>(C(0.693147180559945309)), vec<C>(C(8)));
    a = xsimd::select(within, a, exp_scaled<C>(xsimd::select(x > cap, cap, x), exponent) * inverse);
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
      const vec<C> a = exact_weight<C>(key, vec<C>(w[t]), inverse, load(up.exponent + t * L), load(up.base_hi + t * L),
                                       load(up.base_lo + t * L));
      const auto empty = inverse == zero;
      const vec<C> ag = xsimd::select(empty, zero, a * load(up.g + t * L));
      a_block = a_block + ag;
      b_block = mul_add(ag, value - load(up.o + t * L), b_block);
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
