// SPDX-License-Identifier: Apache-2.0
/// @file gates.hpp  The function of q that multiplies the average, and its derivative.
#pragma once

#include <aft/core/options.hpp>

#include "exp.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

namespace gate_detail {

// All gates are written in e = exp(-|x|) <= 1: it cannot overflow, and neither side of 0 subtracts near-equal numbers.
template <class C>
inline vec<C> decay(const vec<C>& x) {
  return exp_scaled<C>(-xsimd::abs(x), vec<C>(C(0)));
}

/// 1 / (1 + e^-x), with its full relative accuracy for x << 0.
template <class C>
inline vec<C> sigmoid(const vec<C>& x) {
  const vec<C> e = decay<C>(x);
  const vec<C> one(C(1));
  return xsimd::select(x < vec<C>(C(0)), e, one) / (one + e);
}

/// sigmoid'(x) = e / (1 + e)^2, an even function.
template <class C>
inline vec<C> sigmoid_slope(const vec<C>& x) {
  const vec<C> e = decay<C>(x);
  const vec<C> one_plus = vec<C>(C(1)) + e;
  return e / (one_plus * one_plus);
}

/// x + x z P(z) below 0.625, z = x^2, with the minimax P of Cephes (Moshier): 1 - 2 / (1 + e^2x) would lose the
/// leading digits of a small x there.
template <class C>
inline vec<C> tanh(const vec<C>& x) {
  const vec<C> a = xsimd::abs(x);
  const vec<C> z = x * x;
  vec<C> near;
  if constexpr (sizeof(C) == 4) {
    near = vec<C>(-5.70498872745e-3f);
    near = mul_add(near, z, vec<C>(2.06390887954e-2f));
    near = mul_add(near, z, vec<C>(-5.37397155531e-2f));
    near = mul_add(near, z, vec<C>(1.33314422036e-1f));
    near = mul_add(near, z, vec<C>(-3.33332819422e-1f));
  } else {
    near = vec<C>(-9.64399179425052238628e-1);
    near = mul_add(near, z, vec<C>(-9.92877231001918586564e1));
    near = mul_add(near, z, vec<C>(-1.61468768441708447952e3));
    vec<C> q = z + vec<C>(1.12811678491632931402e2);
    q = mul_add(q, z, vec<C>(2.23548839060100448583e3));
    q = mul_add(q, z, vec<C>(4.84406305325125486048e3));
    near = near / q;
  }
  const vec<C> e = decay<C>(a + a);
  const vec<C> one(C(1));
  const vec<C> far = (one - e) / (one + e);
  return xsimd::select(a < vec<C>(C(0.625)), mul_add(near * z, x, x), xsimd::select(x < vec<C>(C(0)), -far, far));
}

}  // namespace gate_detail

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

/// gate'(q); relu'(0) = 0, as everywhere in deep learning.
template <class C>
inline vec<C> gate_slope(gate g, const vec<C>& q) {
  const vec<C> zero(C(0));
  const vec<C> one(C(1));
  switch (g) {
    case gate::none: break;
    case gate::identity: return one;
    case gate::sigmoid: return gate_detail::sigmoid_slope<C>(q);
    case gate::relu: return xsimd::select(q <= zero, zero, xsimd::select(q > zero, one, q));
    case gate::tanh: return vec<C>(C(4)) * gate_detail::sigmoid_slope<C>(q + q);
    case gate::silu: {
      // (q s)' = s + q s'
      const vec<C> slope = gate_detail::sigmoid_slope<C>(q);
      return gate_detail::sigmoid<C>(q) + xsimd::select(slope == zero, zero, q * slope);
    }
  }
  return zero;
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
