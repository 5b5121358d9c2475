// SPDX-License-Identifier: Apache-2.0
/// @file simd/bf16_dot.hpp  Products of bfloat16 pairs with float sums, where the target has the instruction
/// (AVX512-BF16, BFDOT of ARM) and gains by it.
///
/// An instruction makes two products. A core of Zen 5 does as many of them a cycle as multiply-adds of floats, one of
/// Emerald Rapids a quarter as many, 1.40 against 5.64 G/s (2026-11), so floats are twice as fast there. Intel's
/// processors with the instruction have AVX512-FP16 too, except the first, so files compiled for both multiply floats.
///
/// Two keys that follow each other form a pair; a pair travels in the bits of a float, so the tile engine moves pairs
/// and floats by the same code. vdpbf16ps counts subnormal numbers as 0, which the proof checks allow for: what lies
/// below 2^-126 was never counted on. So does BFDOT, which also rounds to odd: whatever is cut off sets the last bit of
/// the sum of a pair's products, and then of the total. A result may be a whole unit off each time, to either side.
/// (Processors with FEAT_EBF16 round otherwise where FPCR says so. Under the library's environment it never does.)
/// BFMMLA would make twice the products of BFDOT where an instruction of each takes as long (Neoverse V1). It wants
/// operands by groups of four keys and two columns, another packing than all else here has: not done.
#pragma once

#include "vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

#if defined(__AVX512F__) && defined(__AVX512BF16__) && !defined(__AVX512FP16__)

template <class C>
inline constexpr bool has_bf16_dot = std::is_same_v<C, float>;

/// sum + a.low b.low + a.high b.high, lane by lane.
inline vec<float> add_pairs(const vec<float>& a, const vec<float>& b, const vec<float>& sum) {
  return vec<float>(_mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, static_cast<__m512>(a)),
                                     __builtin_bit_cast(__m512bh, static_cast<__m512>(b))));
}

/// The nearest bfloat16 number, in the upper half of 32 bits: as it is, a float of that value. Ties away from 0, which
/// takes no more than an addition; it would carry some NaNs to 0.
inline vec<float> round_to_bf16(const vec<float>& x) {
  const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  const __m512i nan = _mm512_set1_epi32(0x7fc00000);
  const __m512i upper =
      _mm512_mask_and_epi32(nan, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), up, _mm512_set1_epi32(-0x10000));
  return vec<float>(_mm512_castsi512_ps(upper));
}

/// The same for what was made of bfloat16 numbers by a few operations: its NaNs are theirs, or the processor's own, and
/// have no lower bits that could carry.
inline vec<float> round_made_of_bf16(const vec<float>& x) {
  const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return vec<float>(_mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x10000))));
}

/// The pairs (first, second) of two vectors of bfloat16 numbers.
inline vec<float> join_pairs(const vec<float>& first, const vec<float>& second) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(first), 16);
  return vec<float>(_mm512_castsi512_ps(_mm512_or_si512(low, _mm512_castps_si512(second))));
}

/// The pairs of 2 lanes numbers, those of `low` first, in the order in which they lie.
inline vec<float> pair_up(const vec<float>& low, const vec<float>& high) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const vec<float> first = round_to_bf16(low), second = round_to_bf16(high);
  return join_pairs(vec<float>(_mm512_permutex2var_ps(first, even, second)),
                    vec<float>(_mm512_permutex2var_ps(first, odd, second)));
}

#elif defined(AFT_NEON64) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

template <class C>
inline constexpr bool has_bf16_dot = std::is_same_v<C, float>;

inline bfloat16x8_t as_pairs(const vec<float>& x) {
  return vreinterpretq_bf16_f32(x);
}
inline vec<float> add_pairs(const vec<float>& a, const vec<float>& b, const vec<float>& sum) {
  return vec<float>(vbfdotq_f32(sum, as_pairs(a), as_pairs(b)));
}
/// The same with a pair of a's for all lanes.
template <index_t lane>
[[gnu::always_inline]] inline vec<float> add_pairs_lane(const vec<float>& a, const vec<float>& b,
                                                        const vec<float>& sum) {
  return vec<float>(vbfdotq_laneq_f32(sum, as_pairs(b), as_pairs(a), static_cast<int>(lane)));
}

/// Ties to even; a NaN stays one.
inline vec<float> round_to_bf16(const vec<float>& x) {
  return vec<float>(
      vreinterpretq_f32_bf16(vreinterpretq_bf16_u32(vshll_n_u16(vreinterpret_u16_bf16(vcvt_bf16_f32(x)), 16))));
}
inline vec<float> round_made_of_bf16(const vec<float>& x) {
  return round_to_bf16(x);
}
inline vec<float> join_pairs(const vec<float>& first, const vec<float>& second) {
  return vec<float>(
      vreinterpretq_f32_u32(vsriq_n_u32(vreinterpretq_u32_f32(second), vreinterpretq_u32_f32(first), 16)));
}
inline vec<float> pair_up(const vec<float>& low, const vec<float>& high) {
  return vec<float>(vreinterpretq_f32_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high)));
}

#else

template <class C>
inline constexpr bool has_bf16_dot = false;

#endif

}  // namespace aft::inline AFT_ISA::cpu_impl
