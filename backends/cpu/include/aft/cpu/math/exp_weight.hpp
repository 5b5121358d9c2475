// SPDX-License-Identifier: Apache-2.0
/// @file math/exp_weight.hpp  exp for weights that are only compared with one another.
///
/// With AVX2, AVX-512 or NEON and float the base is not e but e^(1 - 2^-28.4), as if every argument were smaller by a
/// sixteenth of its last place: that saves the second half of ln 2. Averages do not notice, since all weights have the
/// same base, nor does a sum's logarithm. Error against that base at most 1.5 ulp. Of e^-lse it is a real error, an
/// eighth of what rounding lse itself leaves. Factors of one weight, e^k e^w e^-lse, all have to be of this base, and
/// what was taken out of an argument counts as base_excess says: k and w may be thousands each and cancel.
#pragma once

#include "exp.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// What is added to x / ln 2 to round it: of float to 32nds with AVX-512 and to eighths with AVX2 and NEON, as many as
/// a table in registers has entries, whose number then stands in the lowest bits; else to integers.
template <class C>
inline constexpr C step_zero = exp_constants<C>::magic;

#if defined(__AVX512F__)
template <>
inline constexpr float step_zero<float> = 0x1.8p18f;

namespace exp_detail {

/// e^x or e^-x as (1 + p) times 2^(i/32), i being the steps of x.
template <bool Minus>
struct weight_parts {
  __m512 steps, i, p;

  /// `from` is step_zero less an integer, which is then missing in `steps`.
  explicit weight_parts(const __m512& x, const __m512& from) {
    const __m512 log2e = _mm512_set1_ps(exp_constants<float>::log2e), ln2 = _mm512_set1_ps(0x1.62e430p-1f);
    steps = Minus ? _mm512_fnmadd_ps(x, log2e, from) : _mm512_fmadd_ps(x, log2e, from);
    i = _mm512_sub_ps(steps, from);
    const __m512 f = Minus ? _mm512_fnmsub_ps(i, ln2, x) : _mm512_fnmadd_ps(i, ln2, x);
    // e^f - 1 for |f| <= ln(2) / 64, off by 2^-24.2.
    p = _mm512_mul_ps(f, _mm512_fmadd_ps(f, _mm512_set1_ps(0.500004f), _mm512_set1_ps(1.0000147f)));
  }

  /// 2^(j/32) for the lowest five bits j of `steps`, as bits and less j << 18.
  __m512i table() const {
    alignas(64) static constexpr std::uint32_t entries[32] = {
        0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
        0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
        0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
        0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3};
    return _mm512_permutex2var_epi32(_mm512_load_si512(entries), _mm512_castps_si512(steps),
                                     _mm512_load_si512(entries + 16));
  }

  /// 2^(j/32) (1 + p).
  __m512 mantissa() const {
    const __m512i fraction = _mm512_and_si512(_mm512_castps_si512(steps), _mm512_set1_epi32(31));
    return times(_mm512_slli_epi32(fraction, 18));
  }
  /// The same, times two to the whole steps: they arrive in the exponent, their fraction adds what the table lacks.
  __m512 power() const { return times(_mm512_slli_epi32(_mm512_castps_si512(steps), 18)); }
  /// The whole steps, perhaps with a fraction.
  __m512 exponent() const { return i; }

 private:
  __m512 times(const __m512i& bits) const {
    const __m512 m = _mm512_castsi512_ps(_mm512_add_epi32(table(), bits));
    return _mm512_fmadd_ps(m, p, m);
  }
};

}  // namespace exp_detail
#elif defined(__AVX2__) && defined(__FMA__)
template <>
inline constexpr float step_zero<float> = 0x1.8p20f;

namespace exp_detail {

/// e^x or e^-x as (1 + p) times 2^(i/8). In place of exp_split it takes 0.72 of the time of `simple` on 17 MB, 0.67 on
/// 268 MB, and 0.70 of its backward call (Zen 5 held to AVX2, 2026-11, one thread).
template <bool Minus>
struct weight_parts {
  __m256 steps, i, p;

  /// `from` is step_zero less an integer, which is then missing in `steps`.
  explicit weight_parts(const __m256& x, const __m256& from) {
    const __m256 log2e = _mm256_set1_ps(exp_constants<float>::log2e), ln2 = _mm256_set1_ps(0x1.62e430p-1f);
    steps = Minus ? _mm256_fnmadd_ps(x, log2e, from) : _mm256_fmadd_ps(x, log2e, from);
    i = _mm256_sub_ps(steps, from);
    const __m256 f = Minus ? _mm256_fnmsub_ps(i, ln2, x) : _mm256_fnmadd_ps(i, ln2, x);
    // e^f - 1 for |f| <= ln(2) / 16, off by 2^-25.1.
    const __m256 q = _mm256_fmadd_ps(f, _mm256_set1_ps(0x1.5548eap-3f), _mm256_set1_ps(0x1.00087ep-1f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(f, f), q, f);
  }

  /// 2^(j/8) (1 + p) for the lowest three bits j of `steps`.
  __m256 mantissa() const {
    const __m256i fraction = _mm256_and_si256(_mm256_castps_si256(steps), _mm256_set1_epi32(7));
    return times(_mm256_slli_epi32(fraction, 20));
  }
  /// The same, times two to the whole steps: they arrive in the exponent, their fraction adds what the table lacks.
  __m256 power() const { return times(_mm256_slli_epi32(_mm256_castps_si256(steps), 20)); }
  /// The whole steps.
  __m256 exponent() const { return _mm256_floor_ps(i); }

 private:
  __m256 times(const __m256i& bits) const {
    // 2^(j/8), as bits and less j << 20.
    const __m256i table = _mm256_setr_epi32(0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a,
                                            0x3f7744fd, 0x3f7ac0c7);
    const __m256i entry = _mm256_permutevar8x32_epi32(table, _mm256_castps_si256(steps));
    const __m256 m = _mm256_castsi256_ps(_mm256_add_epi32(entry, bits));
    return _mm256_fmadd_ps(m, p, m);
  }
};

}  // namespace exp_detail
#elif defined(AFT_NEON64)
template <>
inline constexpr float step_zero<float> = 0x1.8p20f;

namespace exp_detail {

/// e^x or e^-x as (1 + p) times 2^(i/8), by the arithmetic of AVX2. A loop over exp_near is 21 instructions by it, with
/// exp_split 27 (counted, g++ 12 and clang++ 19; not timed).
template <bool Minus>
struct weight_parts {
  float32x4_t steps, i, p;

  /// `from` is step_zero less an integer, which is then missing in `steps`.
  explicit weight_parts(const vec<float>& x, const vec<float>& from) {
    const float32x4_t given = x, y = Minus ? vnegq_f32(given) : given;
    steps = vfmaq_f32(from, y, vdupq_n_f32(exp_constants<float>::log2e));
    i = vsubq_f32(steps, from);
    const float32x4_t f = vfmsq_f32(y, i, vdupq_n_f32(0x1.62e430p-1f));
    // e^f - 1 for |f| <= ln(2) / 16, off by 2^-25.1.
    const float32x4_t q = vfmaq_f32(vdupq_n_f32(0x1.00087ep-1f), f, vdupq_n_f32(0x1.5548eap-3f));
    p = vfmaq_f32(f, vmulq_f32(f, f), q);
  }

  /// 2^(j/8) (1 + p) for the lowest three bits j of `steps`.
  vec<float> mantissa() const {
    alignas(16) static constexpr std::uint32_t entries[8] = {0x3f800000, 0x3f8b95c2, 0x3f9837f0, 0x3fa5fed7,
                                                             0x3fb504f3, 0x3fc5672a, 0x3fd744fd, 0x3feac0c7};
    return times(look_up(entries));
  }
  /// The same, times two to the whole steps: they arrive in the exponent, their fraction adds what the table lacks.
  vec<float> power() const {
    // 2^(j/8), as bits and less j << 20.
    alignas(16) static constexpr std::uint32_t entries[8] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                                             0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    return times(vaddq_u32(look_up(entries), vshlq_n_u32(vreinterpretq_u32_f32(steps), 20)));
  }
  /// The whole steps.
  vec<float> exponent() const { return vec<float>(vrndmq_f32(i)); }

 private:
  /// Byte by byte, as tables are read here: entry j is bytes 4 j to 4 j + 3.
  uint32x4_t look_up(const std::uint32_t* entries) const {
    const uint32x4_t j = vandq_u32(vreinterpretq_u32_f32(steps), vdupq_n_u32(7));
    const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), j, vdupq_n_u32(0x04040404));
    // By its address: as two constants GCC 12 makes them again for every exp, in four instructions.
    const uint8x16x2_t table = vld1q_u8_x2(reinterpret_cast<const std::uint8_t*>(entries));
    return vreinterpretq_u32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(bytes)));
  }
  vec<float> times(uint32x4_t bits) const {
    const float32x4_t m = vreinterpretq_f32_u32(bits);
    return vec<float>(vfmaq_f32(m, m, p));
  }
};

}  // namespace exp_detail
#endif

// Which targets have weight_parts.
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__)) || defined(AFT_NEON64)
#define AFT_WEIGHT_PARTS
#endif

namespace exp_detail {
/// Whether weight_parts serves vectors of C.
template <class C>
inline constexpr bool has_weight_parts =
#if defined(__AVX512F__)
    sizeof(vec<C>) == 64 && sizeof(C) == 4;
#elif defined(__AVX2__) && defined(__FMA__)
    sizeof(vec<C>) == 32 && sizeof(C) == 4;
#elif defined(AFT_NEON64)
    sizeof(C) == 4;
#else
    false;
#endif
}  // namespace exp_detail

/// The logarithm of the base, less 1.
template <class C>
inline constexpr C base_excess = exp_detail::has_weight_parts<C> ? C(-2.7478e-9) : C(0);

/// x / ln 2 rounded as exp_weight rounds it, plus step_zero.
template <class C>
inline vec<C> exp_steps(const vec<C>& x) {
  return mul_add(x, vec<C>(exp_constants<C>::log2e), vec<C>(step_zero<C>));
}

/// For what goes straight into times_pow2 or raise: the exponent may have a fraction, and only its floor counts, as
/// these two take it anyway.
template <class C>
inline split_exp<C> exp_weight(const vec<C>& x) {
#if defined(AFT_WEIGHT_PARTS)
  if constexpr (exp_detail::has_weight_parts<C>) {
    const exp_detail::weight_parts<false> e(x, vec<C>(step_zero<C>));
    return {vec<C>(e.mantissa()), vec<C>(e.exponent())};
  }
#endif
  return exp_split<C>(x);
}

/// e^x 2^-shift, or with Minus e^-x 2^-shift, where that is a normal number: exp_weight and times_pow2 in fewer
/// instructions, with the same bits. `shift` is integral.
template <class C, bool Minus = false>
inline vec<C> exp_near(const vec<C>& x, const vec<C>& shift) {
#if defined(AFT_WEIGHT_PARTS)
  if constexpr (exp_detail::has_weight_parts<C>)
    return vec<C>(exp_detail::weight_parts<Minus>(x, vec<C>(step_zero<C>) - shift).power());
#endif
  const split_exp<C> e = exp_split<C>(Minus ? -x : x);
  return times_pow2<C>(e.mantissa, e.exponent - shift);
}

/// exp_weight with an integral exponent.
template <class C>
inline split_exp<C> exp_weight_whole(const vec<C>& x) {
  const split_exp<C> e = exp_weight<C>(x);
  if constexpr (exp_detail::has_weight_parts<C>) return {e.mantissa, xsimd::floor(e.exponent)};
  return e;
}

/// The mantissa of e^x, 1 where x is beyond the range or no number: see softmax/first_key.hpp.
template <class C>
inline vec<C> weight_unit(const vec<C>& x) {
  const auto known = (xsimd::abs)(x) <= vec<C>(exp_constants<C>::range);
  return exp_weight<C>(xsimd::select(known, x, vec<C>(C(0)))).mantissa;
}

/// exp_scaled in the arithmetic of exp_weight: e^x 2^-shift, exactly 0 below 2^-125 (2^-126 without it) and so for
/// -inf; NaN stays NaN. `shift` is integral. Where the result is past every number it may be anything.
template <class C>
inline vec<C> weight_scaled(const vec<C>& x, const vec<C>& shift) {
#if defined(__AVX512F__)
  if constexpr (exp_detail::has_weight_parts<C>) {
    const exp_detail::weight_parts<false> e(x, vec<C>(step_zero<C>) - shift);
    const __m512 least = _mm512_set1_ps(step_zero<C> - C(125));
    return vec<C>(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(e.steps, least, _CMP_NLT_UQ), e.power()));
  }
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (exp_detail::has_weight_parts<C>) {
    const exp_detail::weight_parts<false> e(x, vec<C>(step_zero<C>) - shift);
    const __m256 least = _mm256_set1_ps(step_zero<C> - C(125));
    return vec<C>(_mm256_and_ps(_mm256_cmp_ps(e.steps, least, _CMP_NLT_UQ), e.power()));
  }
#elif defined(AFT_NEON64)
  if constexpr (exp_detail::has_weight_parts<C>) {
    const exp_detail::weight_parts<false> e(x, vec<C>(step_zero<C>) - shift);
    const uint32x4_t lost = vcltq_f32(e.steps, vdupq_n_f32(step_zero<C> - C(125)));
    return vec<C>(vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(e.power()), lost)));
  }
#endif
  return exp_scaled<C>(x, shift);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
