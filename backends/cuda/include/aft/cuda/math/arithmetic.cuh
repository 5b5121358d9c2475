// SPDX-License-Identifier: Apache-2.0
/// @file math/arithmetic.cuh  exp with its power of two kept apart, and the rest of a thread's scalar arithmetic.
///
/// A weight is m 2^i with m in [0.70, 1.42]; sums are rescaled by powers of two only, which does not round. The bits
/// of a row then do not depend on what else shares its tile (docs/adr/0003-powers-of-two.md).
#pragma once

#include "../device/device.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Constants of the two arithmetic types. `magic` added to x rounds x to an integer in the low bits of the sum.
template <class C>
struct number;

template <>
struct number<float> {
  using bits = std::uint32_t;
  static constexpr float log2e = 1.44269504f;
  static constexpr float ln2_hi = 0.693359375f;  // 10 bits: exact times an integer below 2^13
  static constexpr float ln2_lo = -2.12194440e-4f;
  static constexpr float magic = 0x1.8p23f;
  static constexpr float bias = 127.0f;
  static constexpr int mantissa_bits = 23;
  static constexpr float range = 4096.0f;  ///< logits beyond it take the exact path: 4096 / ln 2 is below 2^13
  static constexpr float infinity = __builtin_huge_valf();
  static constexpr float nan = __builtin_nanf("");
  static constexpr float largest = 3.402823466e+38f;
  /// A row whose largest |v| is below it sums scaled values instead: a term may lose 2^-150 to the denormals.
  static constexpr float least_value = 0x1p-90f;
};

template <>
struct number<double> {
  using bits = std::uint64_t;
  static constexpr double log2e = 1.4426950408889634;
  static constexpr double ln2_hi = 6.93147180369123816490e-01;  // 33 bits
  static constexpr double ln2_lo = 1.90821492927058770002e-10;
  static constexpr double magic = 0x1.8p52;
  static constexpr double bias = 1023.0;
  static constexpr int mantissa_bits = 52;
  static constexpr double range = 4096.0;
  static constexpr double infinity = __builtin_huge_val();
  static constexpr double nan = __builtin_nan("");
  static constexpr double largest = 1.7976931348623157e+308;
  static constexpr double least_value = 0x1p-900;
};

/// Exponent of a weight that is 0, and of a sum of nothing: far below that of any product of two weights.
template <class C>
inline constexpr C no_exponent = C(-65536);

template <class C>
AFT_DEVICE typename number<C>::bits to_bits(C x) {
  return __builtin_bit_cast(typename number<C>::bits, x);
}
template <class C>
AFT_DEVICE C from_bits(typename number<C>::bits x) {
  return __builtin_bit_cast(C, x);
}
template <class C>
AFT_DEVICE C magnitude(C x) {
  using bits = typename number<C>::bits;
  // A modifier of whatever takes it, where a comparison would be two instructions.
  return from_bits<C>(to_bits<C>(x) & (~bits(0) >> 1));
}
template <class C>
AFT_DEVICE bool is_finite(C x) {
  return magnitude(x) <= number<C>::largest;
}
// Both are a where b is NaN.
template <class C>
AFT_DEVICE C larger(C a, C b) {
  return b > a ? b : a;
}
template <class C>
AFT_DEVICE C smaller(C a, C b) {
  return b < a ? b : a;
}

/// 2^j for integral j <= 127 (1023); 0 where j is below the smallest normal exponent.
template <class C>
AFT_DEVICE C pow2(C j) {
  const C clipped = j < -number<C>::bias ? -number<C>::bias : j;
  return from_bits<C>(to_bits<C>(clipped + (number<C>::magic + number<C>::bias)) << number<C>::mantissa_bits);
}

/// exp(x) = mantissa * 2^exponent, the exponent integral.
template <class C>
struct split_exp {
  C mantissa;
  C exponent;
};

/// exp(x) = (1 + rest) * 2^exponent, where the rest alone keeps what is lost beside the 1.
template <class C>
struct exp_rest {
  C rest;
  C exponent;
};

/// |x| <= 4096; NaN stays.
template <class C>
AFT_DEVICE exp_rest<C> exp_with_rest(C x) {
  using n = number<C>;
  const C i = fused(x, n::log2e, n::magic) - n::magic;
  C f = fused(i, -n::ln2_hi, x);
  f = fused(i, -n::ln2_lo, f);
  // q(f) = (e^f - 1 - f) / f^2 at the Chebyshev nodes of |f| <= ln(2)/2: relative error 2^-26.6 and 2^-55.7.
  C q;
  if constexpr (sizeof(C) == 4) {
    q = 0.00139261836f;
    q = fused(q, f, 0.00836317905f);
    q = fused(q, f, 0.0416665546f);
    q = fused(q, f, 0.166665770f);
    q = fused(q, f, 0.5f);
  } else {
    q = 0x1.af38a9b0ec855p-26;
    q = fused(q, f, 0x1.289185613a3d6p-22);
    q = fused(q, f, 0x1.71de0dae63bb3p-19);
    q = fused(q, f, 0x1.a019b90d2ae7ap-16);
    q = fused(q, f, 0x1.a01a01a7c41d5p-13);
    q = fused(q, f, 0x1.6c16c1788bd90p-10);
    q = fused(q, f, 0x1.11111111109b3p-7);
    q = fused(q, f, 0x1.5555555553d63p-5);
    q = fused(q, f, 0x1.5555555555556p-3);
    q = fused(q, f, 0x1.0000000000001p-1);
  }
  return {fused(f * f, q, f), i};
}

/// |x| <= 4096. Error of the mantissa at most 1.2 ulp in float, 1.1 in double; NaN stays.
template <class C>
AFT_DEVICE split_exp<C> exp_split(C x) {
  const exp_rest<C> e = exp_with_rest<C>(x);
  return {C(1) + e.rest, e.exponent};
}

/// exp(x) * 2^-shift, 0 where that underflows. x below -4096 counts as -4096; x <= 4096; NaN stays NaN.
template <class C>
AFT_DEVICE C exp_scaled(C x, C shift) {
  const split_exp<C> e = exp_split<C>(x < -number<C>::range ? -number<C>::range : x);
  return e.mantissa * pow2<C>(e.exponent - shift);
}

/// A logit as kernels stage it: (0, no_exponent) when it is -inf, which hides; NaN where only the exact path will do.
template <class C>
AFT_DEVICE split_exp<C> stage_logit(C x) {
  if (x == -number<C>::infinity) return {C(0), no_exponent<C>};
  if (!(magnitude(x) <= number<C>::range)) return {number<C>::nan, number<C>::nan};
  return exp_split<C>(x);
}

/// x = m 2^e with m in [1, 2), for normal positive x.
template <class C>
AFT_DEVICE split_exp<C> split_number(C x) {
  using n = number<C>;
  using bits = typename n::bits;
  constexpr bits fraction = (bits(1) << n::mantissa_bits) - 1;
  const bits b = to_bits<C>(x);
  return {from_bits<C>((b & fraction) | to_bits<C>(C(1))),
          static_cast<C>(static_cast<int>(b >> n::mantissa_bits)) - n::bias};
}

/// hi + lo = a/2 + b/2 exactly (Knuth's two-sum): the sum of two logits that cannot overflow.
template <class C>
struct half_sum {
  C hi;
  C lo;
};
template <class C>
AFT_DEVICE half_sum<C> add_halves(C a, C b) {
  const C x = a * C(0.5);
  const C y = b * C(0.5);
  const C hi = x + y;
  const C back = hi - x;
  return {hi, (x - (hi - back)) + (y - back)};
}

/// 2 (base.hi + base.lo) + log(x * 2^shift) for normal positive x. Small results are lost neither to a large shift,
/// whose exponent merges that of x before it is multiplied by ln 2, nor to a base of the other sign: the first half of
/// that product is exact and merges the base. Without a base the error is at most 1 ulp of max(1, |result|).
template <class C>
AFT_DEVICE C log_from_base(const half_sum<C>& base, C x, C shift) {
  using n = number<C>;
  constexpr int terms = sizeof(C) == 4 ? 5 : 11;
  const split_exp<C> parts = split_number<C>(x);
  const bool upper = parts.mantissa > C(1.41421356237309504880);
  const C m = upper ? parts.mantissa * C(0.5) : parts.mantissa;
  const C e = parts.exponent + shift + (upper ? C(1) : C(0));
  // 2 artanh((m - 1) / (m + 1)), cut where the next term is below half an ulp.
  const C s = (m - C(1)) / (m + C(1));
  const C s2 = s * s;
  C q = C(1) / C(2 * terms + 1);
  AFT_DEVICE_UNROLL
  for (int i = terms - 1; i >= 1; --i) q = fused(q, s2, C(1) / C(2 * i + 1));
  const C twice = s + s;
  const C log_m = fused(twice * s2, q, twice);
  const C first = fused(e, n::ln2_hi * C(0.5), base.hi);
  return C(2) * (first + fused(fused(e, n::ln2_lo, log_m), C(0.5), base.lo));
}

/// 2^e with scale * largest in [0.5, 1) where both powers are normal numbers; 1 where there is nothing to scale.
template <class C>
AFT_DEVICE C value_exponent(C largest) {
  if (!(largest > C(0))) return C(0);
  // A denormal has no leading bit to read the exponent from.
  const bool tiny = largest < pow2<C>(C(1) - number<C>::bias);
  const C lift = C(number<C>::mantissa_bits + 1);
  const C e = split_number<C>(tiny ? largest * pow2<C>(lift) : largest).exponent + C(1) - (tiny ? lift : C(0));
  const C most = number<C>::bias - C(1);
  return e < -most ? -most : (e > most ? most : e);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
