// SPDX-License-Identifier: Apache-2.0
/// @file simd/conversions.hpp  Whole vectors of the arithmetic type from and to storage types.
#pragma once

#include <cstdint>
#include <type_traits>

#include <aft/core/numeric.hpp>

#include "vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

#if defined(__AVX512F__)
inline vec<float> load_widened(const bfloat16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return vec<float>(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
}
inline vec<float> load_widened(const half* p) {
  return vec<float>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
/// The upper halves of 32 bits.
inline void store_upper(bfloat16* p, const __m512i& bits) {
#if defined(__AVX512BW__)
  // One instruction, where a shift and the conversion to 16 bits are three.
  alignas(64) static constexpr std::uint16_t upper[32] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  const __m512i packed = _mm512_permutexvar_epi16(_mm512_load_si512(upper), bits);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(packed));
#else
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
#endif
}
/// By integers: the instruction that converts would lose subnormal numbers.
inline __m512i round_bits(const __m512i& bits) {
  // Minus what is to be added: 0x8000 where the lowest bit that stays is odd, else 0x7fff.
  const __m512i down = _mm512_ternarylogic_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1),
                                                 _mm512_set1_epi32(-0x8000), 0xae);  // (~a & b) | c
  return _mm512_sub_epi32(bits, down);
}
inline void store_rounded(bfloat16* p, const vec<float>& v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  store_upper(p, _mm512_mask_mov_epi32(round_bits(bits), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet));
}
inline void store_number(bfloat16* p, const vec<float>& v) {
  store_upper(p, round_bits(_mm512_castps_si512(v)));
}
inline void store_rounded(half* p, const vec<float>& v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
inline vec<float> load_widened(const bfloat16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return vec<float>(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
}
inline vec<float> load_widened(const half* p) {
  return vec<float>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline __m256i round_bits(const __m256i& bits) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}
inline void store_upper(bfloat16* p, const __m256i& bits) {
  const __m256i kept = _mm256_srli_epi32(bits, 16);
  // Each half of the register is packed by itself.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(kept, kept), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
inline void store_rounded(bfloat16* p, const vec<float>& v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  store_upper(p, _mm256_blendv_epi8(round_bits(bits), quiet, nan));
}
inline void store_number(bfloat16* p, const vec<float>& v) {
  store_upper(p, round_bits(_mm256_castps_si256(v)));
}
inline void store_rounded(half* p, const vec<float>& v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(AFT_NEON64)
inline vec<float> load_widened(const bfloat16* p) {
  uint16x4_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return vec<float>(vreinterpretq_f32_u32(vshll_n_u16(bits, 16)));
}
inline vec<float> load_widened(const half* p) {
  float16x4_t numbers;
  __builtin_memcpy(&numbers, p, sizeof numbers);
  return vec<float>(vcvt_f32_f16(numbers));
}
inline uint32x4_t round_bits(uint32x4_t bits) {
  // The lowest bit that stays: 0x7fff and 1 more where it is odd.
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  return vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
}
inline void store_upper(bfloat16* p, uint32x4_t bits) {
  const uint16x4_t upper = vshrn_n_u32(bits, 16);
  __builtin_memcpy(static_cast<void*>(p), &upper, sizeof upper);
}
inline void store_rounded(bfloat16* p, const vec<float>& v) {
  const float32x4_t number = v;
  const uint32x4_t bits = vreinterpretq_u32_f32(number);
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  store_upper(p, vbslq_u32(vceqq_f32(number, number), round_bits(bits), quiet));
}
inline void store_number(bfloat16* p, const vec<float>& v) {
  const float32x4_t number = v;
  store_upper(p, round_bits(vreinterpretq_u32_f32(number)));
}
inline void store_rounded(half* p, const vec<float>& v) {
  const float16x4_t numbers = vcvt_f16_f32(v);
  __builtin_memcpy(static_cast<void*>(p), &numbers, sizeof numbers);
}
#endif

/// Whether there are instructions for T. What they return is what numeric.hpp returns, but for the bits of a NaN.
template <class T, class C>
inline constexpr bool converts = requires(T* p, const vec<C>& v) {
  load_widened(p);
  store_rounded(p, v);
};

/// The lanes' numbers that lie side by side from p on.
template <class C, class T>
inline vec<C> load_as(const T* p) {
  if constexpr (std::is_same_v<T, C>) {
    return load(p);
  } else if constexpr (converts<T, C>) {
    return load_widened(p);
  } else {
    C wide[lanes<C>];
    for (index_t l = 0; l < lanes<C>; ++l) wide[l] = static_cast<C>(static_cast<compute_t<T>>(p[l]));
    return load(wide);
  }
}

/// The inverse; rounds to nearest even.
template <class C, class T>
inline void store_as(T* p, const vec<C>& v) {
  if constexpr (std::is_same_v<T, C>) {
    store(p, v);
  } else if constexpr (converts<T, C>) {
    store_rounded(p, v);
  } else {
    C wide[lanes<C>];
    store(wide, v);
    for (index_t l = 0; l < lanes<C>; ++l) p[l] = T(static_cast<compute_t<T>>(wide[l]));
  }
}

/// The same of numbers. Of a NaN anything may become, unless its lower 16 bits are 0, as those of bfloat16 data and of
/// the processor's own NaN are: it stays one.
template <class C, class T>
inline void store_numbers_as(T* p, const vec<C>& v) {
  if constexpr (requires { store_number(p, v); }) {
    store_number(p, v);
  } else {
    store_as<C>(p, v);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
