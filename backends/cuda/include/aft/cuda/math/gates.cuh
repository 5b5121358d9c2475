// SPDX-License-Identifier: Apache-2.0
/// @file math/gates.cuh  The function of q that multiplies the average, and its derivative.
#pragma once

#include <aft/core/problem/options.hpp>

#include "arithmetic.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

// All gates are written in e = exp(-|x|) <= 1: it cannot overflow, and neither side of 0 subtracts near-equal numbers.

/// 1 / (1 + e^-x), with its full relative accuracy for x << 0.
template <class C>
AFT_DEVICE C sigmoid(C x) {
  const C e = exp_scaled<C>(-magnitude(x), C(0));
  return (x < C(0) ? e : C(1)) / (C(1) + e);
}

/// sigmoid'(x) = e / (1 + e)^2, an even function.
template <class C>
AFT_DEVICE C sigmoid_slope(C x) {
  const C e = exp_scaled<C>(-magnitude(x), C(0));
  return e / ((C(1) + e) * (C(1) + e));
}

/// Near 0 by its power series in x^2, where (1 - e) / (1 + e) would lose the leading digits; below 0.35 the first term
/// that is left out is less than half an ulp.
template <class C>
AFT_DEVICE C tanh_gate(C x) {
  const C a = magnitude(x);
  if (a < C(0.35)) {
    // Coefficients 2^2n (2^2n - 1) B_2n / (2n)! of x^(2n-1) for n = 2, 3, ...
    constexpr C series[] = {C(-1.0 / 3),
                            C(2.0 / 15),
                            C(-17.0 / 315),
                            C(62.0 / 2835),
                            C(-1382.0 / 155925),
                            C(21844.0 / 6081075),
                            C(-929569.0 / 638512875),
                            C(6404582.0 / 10854718875),
                            C(-443861162.0 / 1856156927625),
                            C(18888466084.0 / 194896477400625),
                            C(-113927491862.0 / 2900518163668125),
                            C(58870668456604.0 / 3698160658676859375.0),
                            C(-8374643517010684.0 / 1298054391195577640625.0),
                            C(689005380505609448.0 / 263505041412702261046875.0)};
    constexpr int terms = sizeof(C) == 4 ? 7 : 14;
    const C z = x * x;
    C sum = series[terms - 1];
    AFT_DEVICE_UNROLL
    for (int i = terms - 2; i >= 0; --i) sum = fused(sum, z, series[i]);
    return fused(sum * z, x, x);
  }
  const C e = exp_scaled<C>(-(a + a), C(0));
  const C quotient = (C(1) - e) / (C(1) + e);
  return x < C(0) ? -quotient : quotient;
}

/// gate(q); 1 for gate::none, where q may be anything. A NaN stays a NaN, and +-inf gives the limit.
template <class C>
AFT_DEVICE C gate_value(gate g, C q) {
  switch (g) {
    case gate::none: break;
    case gate::identity: return q;
    case gate::sigmoid: return sigmoid<C>(q);
    case gate::relu: return q <= C(0) ? C(0) : q;
    case gate::tanh: return tanh_gate<C>(q);
    case gate::silu: {
      const C s = sigmoid<C>(q);
      return s == C(0) ? C(0) : q * s;  // guards -inf * 0
    }
  }
  return C(1);
}

/// gate'(q); relu'(0) = 0, as everywhere in deep learning.
template <class C>
AFT_DEVICE C gate_slope(gate g, C q) {
  switch (g) {
    case gate::none: break;
    case gate::identity: return C(1);
    case gate::sigmoid: return sigmoid_slope<C>(q);
    case gate::relu: return q <= C(0) ? C(0) : (q > C(0) ? C(1) : q);
    case gate::tanh: return C(4) * sigmoid_slope<C>(q + q);
    case gate::silu: {
      const C slope = sigmoid_slope<C>(q);
      return sigmoid<C>(q) + (slope == C(0) ? C(0) : q * slope);  // (q s)' = s + q s'
    }
  }
  return C(0);
}

/// value(x) for all n, in one copy of the code, whose result finds its register by a comparison.
template <class C, int n, class Value>
AFT_DEVICE void one_by_one(const C (&x)[n], C (&out)[n], const Value& value) {
  AFT_DEVICE_UNROLL_BY(1)
  for (int j = 0; j < n; ++j) {
    C own = x[0];
    AFT_DEVICE_UNROLL
    for (int i = 1; i < n; ++i) own = i == j ? x[i] : own;
    own = value(own);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) out[i] = i == j ? own : out[i];
  }
}

/// gate(q) of n rows; `out` may be `q`. The gate of the papers is written out for each, which the compiler overlaps.
template <class C, int n>
AFT_DEVICE void gate_values(gate g, const C (&q)[n], C (&out)[n]) {
  if (g == gate::sigmoid) {
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) out[i] = sigmoid<C>(q[i]);
  } else {
    one_by_one(q, out, [g](C x) { return gate_value<C>(g, x); });
  }
}
/// gate'(q), likewise.
template <class C, int n>
AFT_DEVICE void gate_slopes(gate g, const C (&q)[n], C (&out)[n]) {
  if (g == gate::sigmoid) {
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) out[i] = sigmoid_slope<C>(q[i]);
  } else {
    one_by_one(q, out, [g](C x) { return gate_slope<C>(g, x); });
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
