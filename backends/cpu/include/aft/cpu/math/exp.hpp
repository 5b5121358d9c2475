// SPDX-License-Identifier: Apache-2.0
/// @file math/exp.hpp  exp with a separate power of two, the arithmetic all kernels share.
///
/// Every weight is kept as m * 2^i with m in [0.70, 1.42], and rescaling is by powers of two only. Multiplying by a
/// power of two does not round, so a sum of weights has the same bits whatever maximum it was scaled by: a causal row
/// does not change in the last bit when a future key raises the maximum, and an exact fall-back that carries the
/// exponents apart gives the very bits that the fast path would have given had it not underflowed.
#pragma once

#include "../simd/returned_in_place.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Constants of the two arithmetic types. `magic` added to x rounds x to an integer in the low bits of the sum.
template <class C>
struct exp_constants;

template <>
struct exp_constants<float> {
  static constexpr float log2e = 1.44269504f;
  // ln 2 in two parts, the first of 10 bits: times an integer below 2^13 it is exact without fma too.
  static constexpr float ln2_hi = 0.693359375f;
  static constexpr float ln2_lo = -2.12194440e-4f;
  static constexpr float magic = 0x1.8p23f;
  static constexpr float bias = 127.0f;
  static constexpr int mantissa_bits = 23;
  // Arguments beyond it are taken relative to their maximum first. 4096 / ln 2 stays below 2^13, see ln2_hi.
  static constexpr float range = 4096.0f;
  // So are maxima below it: beside them -4096, where arguments are cut, has to count as 0.
  static constexpr float lowest = -2048.0f;
  static constexpr float largest = 3.402823466e+38f;
  // den below it, or a weight scale above its inverse, proves nothing any more: see softmax/proof.hpp.
  static constexpr float proof = 0x1p-60f;
  static constexpr float value_floor = 0x1p-30f;
};

template <>
struct exp_constants<double> {
  static constexpr double log2e = 1.4426950408889634;
  static constexpr double ln2_hi = 6.93147180369123816490e-01;  // 33 bits
  static constexpr double ln2_lo = 1.90821492927058770002e-10;
  static constexpr double magic = 0x1.8p52;
  static constexpr double bias = 1023.0;
  static constexpr int mantissa_bits = 52;
  static constexpr double range = 4096.0;
  static constexpr double lowest = -2048.0;
  static constexpr double largest = 1.7976931348623157e+308;
  static constexpr double proof = 0x1p-480;
  static constexpr double value_floor = 0x1p-240;
};

/// 2^j for integral j <= 127 (1023); 0 where j is below the smallest normal exponent.
template <class C>
inline vec<C> pow2(const vec<C>& j) {
  using k = exp_constants<C>;
  const vec<C> clipped = xsimd::select(j < vec<C>(-k::bias), vec<C>(-k::bias), j);
  return from_bits<C>(to_bits<C>(clipped + vec<C>(k::magic + k::bias)) << k::mantissa_bits);
}

/// Lanes in which x - y leaves the range, though neither of them does.
template <class C>
inline vec_mask<C> difference_overflows(const vec<C>& x, const vec<C>& y) {
  const vec<C> largest(exp_constants<C>::largest);
  return ((xsimd::abs)(x - y) > largest) & ((xsimd::abs)(x) <= largest) & ((xsimd::abs)(y) <= largest);
}

/// m * 2^j for integral j <= 127 (1023); what falls below the normal range may become 0.
template <class C>
inline vec<C> times_pow2(const vec<C>& m, const vec<C>& j) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_scalef_ps(m, j));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_scalef_pd(m, j));
#endif
  return m * pow2<C>(j);
}

/// m * 2^j for any integral j, down to subnormal results.
template <class C>
inline vec<C> raise(const vec<C>& m, const vec<C>& j) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64) return times_pow2<C>(m, j);
#endif
  using k = exp_constants<C>;
  const vec<C> most(C(2) * k::bias);
  const vec<C> clipped = xsimd::select(j > most, most, j);
  const vec<C> half = (clipped * vec<C>(C(0.5)) + vec<C>(k::magic)) - vec<C>(k::magic);
  return m * pow2<C>(half) * pow2<C>(clipped - half);
}

/// The same for j that are hardly ever near the ends of the range: two powers of two take 1.3 times as long as one
/// (`simple` with silu, AVX2, Emerald Rapids, 2026-11).
template <class C>
inline vec<C> raise_rarely(const vec<C>& m, const vec<C>& j) {
  if constexpr (sizeof(vec<C>) < 64) {
    if (xsimd::all((xsimd::abs)(j) < vec<C>(exp_constants<C>::bias))) return times_pow2<C>(m, j);
  }
  return raise<C>(m, j);
}

/// exp(x) = mantissa * 2^exponent.
template <class C>
struct split_exp {
  vec<C> mantissa;
  vec<C> exponent;  ///< integral
  AFT_RETURNED_IN_PLACE
};

/// Range |x| <= 4096. Error of the mantissa at most 1.2 ulp in float, 1.1 in double (tested over the range); NaN stays.
template <class C>
inline split_exp<C> exp_split(const vec<C>& x) {
  using k = exp_constants<C>;
  const vec<C> rounded = mul_add(x, vec<C>(k::log2e), vec<C>(k::magic));
  const vec<C> i = rounded - vec<C>(k::magic);
  vec<C> f = mul_add(i, vec<C>(-k::ln2_hi), x);
  f = mul_add(i, vec<C>(-k::ln2_lo), f);
  // q(f) = (e^f - 1 - f) / f^2 at the Chebyshev nodes of |f| <= ln(2)/2: relative error 2^-26.6 and 2^-55.7.
  vec<C> q;
  if constexpr (sizeof(C) == 4) {
    q = vec<C>(0.00139261836f);
    q = mul_add(q, f, vec<C>(0.00836317905f));
    q = mul_add(q, f, vec<C>(0.0416665546f));
    q = mul_add(q, f, vec<C>(0.166665770f));
    q = mul_add(q, f, vec<C>(0.5f));
  } else {
    q = vec<C>(0x1.af38a9b0ec855p-26);
    q = mul_add(q, f, vec<C>(0x1.289185613a3d6p-22));
    q = mul_add(q, f, vec<C>(0x1.71de0dae63bb3p-19));
    q = mul_add(q, f, vec<C>(0x1.a019b90d2ae7ap-16));
    q = mul_add(q, f, vec<C>(0x1.a01a01a7c41d5p-13));
    q = mul_add(q, f, vec<C>(0x1.6c16c1788bd90p-10));
    q = mul_add(q, f, vec<C>(0x1.11111111109b3p-7));
    q = mul_add(q, f, vec<C>(0x1.5555555553d63p-5));
    q = mul_add(q, f, vec<C>(0x1.5555555555556p-3));
    q = mul_add(q, f, vec<C>(0x1.0000000000001p-1));
  }
  const vec<C> one(C(1));
  return {one + mul_add(f * f, q, f), i};
}

/// exp(x) * 2^-shift, 0 where that underflows. x below -4096 counts as -4096, so shift must be no less than that of
/// exp_constants::lowest; x <= 4096; NaN stays NaN.
template <class C>
inline vec<C> exp_scaled(const vec<C>& x, const vec<C>& shift) {
  const vec<C> low(-exp_constants<C>::range);
  const split_exp<C> e = exp_split<C>(max_ignoring_nan<C>(x, low));
  const vec<C> j = e.exponent - shift;
  // The product below in two instructions instead of five, with the same bits: 0 from 2^-127 down, NaN where j is NaN.
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    return vec<C>(
        _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(j, vec<C>(-exp_constants<C>::bias), _CMP_NLE_UQ), e.mantissa, j));
  }
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) {
    return vec<C>(
        _mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(j, vec<C>(-exp_constants<C>::bias), _CMP_NLE_UQ), e.mantissa, j));
  }
#endif
  return e.mantissa * pow2<C>(j);
}

/// The integral exponent that exp(x) is scaled by: exp(x) * 2^-exponent_of(x) lies in [0.70, 1.42].
template <class C>
inline vec<C> exponent_of(const vec<C>& x) {
  using k = exp_constants<C>;
  return mul_add(x, vec<C>(k::log2e), vec<C>(k::magic)) - vec<C>(k::magic);
}

/// The exponent of a positive x by its bits; that of a subnormal number is too high.
template <class C>
inline vec<C> exponent_bits(const vec<C>& x) {
  using k = exp_constants<C>;
  const ivec<C> raised = (to_bits<C>(x) >> k::mantissa_bits) | to_bits<C>(vec<C>(k::magic));
  return from_bits<C>(raised) - vec<C>(k::magic + k::bias);
}

/// x = m 2^e with m in [1, 2), for normal positive x.
template <class C>
inline split_exp<C> split_number(const vec<C>& x) {
  using k = exp_constants<C>;
  const vec<C> e = exponent_bits<C>(x);
  // Two halves, since 2^-e alone may not be representable.
  const vec<C> half_e = (e * vec<C>(C(0.5)) + vec<C>(k::magic)) - vec<C>(k::magic);
  return {(x * pow2<C>(-half_e)) * pow2<C>(half_e - e), e};
}

/// log(m) for m in [0.70, 1.42], by 2 artanh((m - 1) / (m + 1)): the series is cut where its next term is below half
/// an ulp. (xsimd 8 cannot compile its own log for AVX-512.)
template <class C>
inline vec<C> log_near_one(const vec<C>& m) {
  constexpr int terms = sizeof(C) == 4 ? 5 : 11;
  const vec<C> one(C(1));
  const vec<C> s = (m - one) / (m + one);
  const vec<C> s2 = s * s;
  vec<C> q(C(1) / C(2 * terms + 1));
  for (int i = terms - 1; i >= 1; --i) q = mul_add(q, s2, vec<C>(C(1) / C(2 * i + 1)));
  const vec<C> twice = s + s;
  return mul_add(twice * s2, q, twice);
}

/// A logarithm before it is rounded to one number: n ln 2 + part.
template <class C>
struct split_log {
  vec<C> n, part;
  AFT_RETURNED_IN_PLACE
};

/// log(x * 2^shift) for normal positive x, without losing small results to a large shift: the exponent of x joins
/// `shift` before it is multiplied by ln 2. `part` has the second half of that product.
template <class C>
inline split_log<C> log_parts(const vec<C>& x, const vec<C>& shift) {
  // By name: on aarch64 the struct has a member that is no part of the number.
  const split_exp<C> number = split_number<C>(x);
  const vec<C>&m = number.mantissa, &e = number.exponent;
  const auto upper = m > vec<C>(C(1.41421356237309504880));
  const vec<C> n = e + shift + xsimd::select(upper, vec<C>(C(1)), vec<C>(C(0)));
  const vec<C> reduced = xsimd::select(upper, m * vec<C>(C(0.5)), m);
  return {n, mul_add(n, vec<C>(exp_constants<C>::ln2_lo), log_near_one<C>(reduced))};
}

/// The same as one number, with an error of at most 1 ulp of max(1, |result|).
template <class C>
inline vec<C> log_shifted(const vec<C>& x, const vec<C>& shift) {
  const split_log<C> log = log_parts<C>(x, shift);
  return mul_add(log.n, vec<C>(exp_constants<C>::ln2_hi), log.part);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
