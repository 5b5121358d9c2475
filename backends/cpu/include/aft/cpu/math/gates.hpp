// SPDX-License-Identifier: Apache-2.0
/// @file math/gates.hpp  The function of q that multiplies the average, and its derivative.
#pragma once

#include <limits>

#include <aft/core/problem/options.hpp>

#include "exp_table.hpp"
#include "exp_weight.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

namespace gate_detail {

/// -x, cut where exp(-x) is past every number, so that the far ends of 1 / (1 + e) come out as exactly 0 and 1.
template <class C>
inline vec<C> exp_minus_argument(const vec<C>& x) {
  const vec<C> low(sizeof(C) == 4 ? C(-105) : C(-750));
  const vec<C> high(sizeof(C) == 4 ? C(89) : C(709.9));
  return min_ignoring_nan<C>(max_ignoring_nan<C>(-x, low), high);
}

/// exp(-x) for 1 / (1 + e).
template <class C>
inline vec<C> exp_minus(const vec<C>& x) {
  const split_exp<C> e = exp_parts<C>(exp_minus_argument<C>(x));
  return raise_rarely<C>(e.mantissa, e.exponent);
}

/// exp(-|x|) <= 1: it cannot overflow, and neither side of 0 subtracts near-equal numbers.
template <class C>
inline vec<C> decay(const vec<C>& x) {
  const vec<C> low(sizeof(C) == 4 ? C(-105) : C(-750));
  const split_exp<C> e = exp_parts<C>(max_ignoring_nan<C>(-(xsimd::abs)(x), low));
  return times_pow2<C>(e.mantissa, e.exponent);
}

/// 1 / (1 + e^-x), with its full relative accuracy for x << 0.
template <class C>
inline vec<C> sigmoid(const vec<C>& x) {
  const vec<C> one(C(1));
  return one / (one + exp_minus<C>(x));
}

/// x + x z P(z) below 0.625, z = x^2, with the minimax P of Cephes (Moshier): 1 - 2 / (1 + e^2x) would lose the
/// leading digits of a small x there.
template <class C>
inline vec<C> tanh(const vec<C>& x) {
  const vec<C> a = (xsimd::abs)(x);
  const vec<C> z = x * x;
  vec<C> inner;
  if constexpr (sizeof(C) == 4) {
    inner = vec<C>(-5.70498872745e-3f);
    inner = mul_add(inner, z, vec<C>(2.06390887954e-2f));
    inner = mul_add(inner, z, vec<C>(-5.37397155531e-2f));
    inner = mul_add(inner, z, vec<C>(1.33314422036e-1f));
    inner = mul_add(inner, z, vec<C>(-3.33332819422e-1f));
  } else {
    inner = vec<C>(-9.64399179425052238628e-1);
    inner = mul_add(inner, z, vec<C>(-9.92877231001918586564e1));
    inner = mul_add(inner, z, vec<C>(-1.61468768441708447952e3));
    vec<C> q = z + vec<C>(1.12811678491632931402e2);
    q = mul_add(q, z, vec<C>(2.23548839060100448583e3));
    q = mul_add(q, z, vec<C>(4.84406305325125486048e3));
    inner = inner / q;
  }
  const vec<C> e = decay<C>(a + a);
  const vec<C> one(C(1));
  const vec<C> outer = (one - e) / (one + e);
  return xsimd::select(a < vec<C>(C(0.625)), mul_add(inner * z, x, x), xsimd::select(x < vec<C>(C(0)), -outer, outer));
}

}  // namespace gate_detail

/// e^-q for exp_minus_quotient: its relative error may grow with |q|, to 3 ulp at the ends of the range, since beside
/// den it counts as e^-|q| at most.
template <class C>
inline vec<C> quotient_exp_minus(const vec<C>& q) {
  const split_exp<C> e = exp_weight<C>(gate_detail::exp_minus_argument<C>(q));
  return raise_rarely<C>(e.mantissa, e.exponent);
}
/// Up to this |q| exp_near gives the same bits.
template <class C>
inline constexpr C near_gate = sizeof(C) == 4 ? C(80) : C(700);

/// A gate and its derivative from one exponential.
template <class C>
struct gate_pair {
  vec<C> value;
  vec<C> slope;
  AFT_RETURNED_IN_PLACE
};

namespace gate_detail {

/// sigmoid'(x) = s (1 - s), the second factor as e^-x s, which no near-equal numbers are subtracted for. Where e^-x is
/// past the range s is 0, and any number will do.
template <class C>
struct sigmoid_parts {
  vec<C> value, rest;

  explicit sigmoid_parts(const vec<C>& exp_minus) {
    const vec<C> one(C(1));
    value = one / (one + exp_minus);
    rest = min_ignoring_nan<C>(exp_minus, vec<C>((std::numeric_limits<C>::max)())) * value;
  }
};
template <class C>
inline gate_pair<C> sigmoid_pair(const vec<C>& x) {
  const sigmoid_parts<C> s(quotient_exp_minus<C>(x));
  return {s.value, s.value * s.rest};
}

}  // namespace gate_detail

/// num / den * sigmoid(q) with one division, where `exp_minus` is e^-q, up to shared_exp_minus. den is that of a fold:
/// positive, and far from the ends of the range.
template <class C>
inline vec<C> exp_minus_quotient(const vec<C>& num, const vec<C>& den, const vec<C>& exp_minus) {
  return num / mul_add(den, exp_minus, den);
}
/// Up to this e^-q it stays in range, for den up to 2^75. Of the gate alone, so that it does not depend on scales.
template <class C>
inline constexpr C shared_exp_minus = C(0x1p48);
/// And so it does up to this |q|.
template <class C>
inline constexpr C shared_gate = C(33);

/// num / den * inverse scale * sigmoid(q), up to shared_exp_minus with the bits of exp_near. All scales are powers of
/// two, so the bits do not depend on what num and den were divided by.
template <class C>
inline vec<C> gated_average(const vec<C>& num, const vec<C>& den, const vec<C>& inverse_scale, const vec<C>& q) {
  const vec<C> inverse = quotient_exp_minus<C>(q);
  const vec<C> shared = exp_minus_quotient<C>(num, den, inverse) * inverse_scale;
  const auto fits = inverse <= vec<C>(shared_exp_minus<C>);
  if (xsimd::all(fits)) return shared;
  return xsimd::select(fits, shared, (num / den) * inverse_scale * gate_detail::sigmoid<C>(q));
}

/// exp_minus_quotient for any exp_minus: beyond shared_exp_minus its product with den could leave the range in one unit
/// and not in another, and two divisions take its place.
template <class C>
inline vec<C> any_exp_minus_quotient(const vec<C>& num, const vec<C>& den, const vec<C>& exp_minus) {
  const vec<C> shared = exp_minus_quotient<C>(num, den, exp_minus);
  const auto fits = exp_minus <= vec<C>(shared_exp_minus<C>);
  if (xsimd::all(fits)) return shared;
  return xsimd::select(fits, shared, num / den / (vec<C>(C(1)) + exp_minus));
}
template <class C>
inline vec<C> sigmoid_quotient(const vec<C>& num, const vec<C>& den, const vec<C>& q) {
  return any_exp_minus_quotient<C>(num, den, quotient_exp_minus<C>(q));
}

/// gate(q); 1 for gate::none, where q may be anything. A NaN stays a NaN, and +-inf gives the limit.
template <class C>
inline vec<C> gate_value(gate g, const vec<C>& q) {
  const vec<C> zero(C(0));
  switch (g) {
    case gate::none: break;
    case gate::identity: return q;
    case gate::sigmoid: return gate_detail::sigmoid<C>(q);
    case gate::relu: return xsimd::select(q <= zero, zero, q);
    case gate::tanh: return gate_detail::tanh<C>(q);
    case gate::silu: {
      const vec<C> s = gate_detail::sigmoid<C>(q);
      // Guards -inf * 0.
      return xsimd::select(s == zero, zero, q * s);
    }
  }
  return vec<C>(C(1));
}

/// gate(q) and gate'(q); relu'(0) = 0, as everywhere in deep learning.
template <class C>
inline gate_pair<C> gate_both(gate g, const vec<C>& q) {
  const vec<C> zero(C(0));
  const vec<C> one(C(1));
  switch (g) {
    case gate::none: break;
    case gate::identity: return {q, one};
    case gate::sigmoid: return gate_detail::sigmoid_pair<C>(q);
    case gate::relu:
      return {xsimd::select(q <= zero, zero, q), xsimd::select(q <= zero, zero, xsimd::select(q > zero, one, q))};
    case gate::tanh: return {gate_detail::tanh<C>(q), vec<C>(C(4)) * gate_detail::sigmoid_pair<C>(q + q).slope};
    case gate::silu: {
      const gate_pair<C> s = gate_detail::sigmoid_pair<C>(q);
      // (q s)' = s + q s', and both guard -inf * 0.
      return {xsimd::select(s.value == zero, zero, q * s.value),
              s.value + xsimd::select(s.slope == zero, zero, q * s.slope)};
    }
  }
  return {one, zero};
}

/// gate'(q)
template <class C>
inline vec<C> gate_slope(gate g, const vec<C>& q) {
  return gate_both<C>(g, q).slope;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
