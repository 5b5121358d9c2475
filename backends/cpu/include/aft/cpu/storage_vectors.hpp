// SPDX-License-Identifier: Apache-2.0
/// @file storage_vectors.hpp  Whole vectors of the arithmetic type from and to storage types.
#pragma once

#include <type_traits>

#include <aft/core/numeric.hpp>

#include "simd.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The lanes' numbers that lie side by side from p on.
template <class C, class T>
inline vec<C> load_as(const T* p) {
  if constexpr (std::is_same_v<T, C>) {
    return load(p);
  } else {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<C, float>) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      return vec<C>(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
    }
#endif
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
  } else {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<C, float>) {
      // By integers: the instruction that converts would lose subnormal numbers.
      const __m512i bits = _mm512_castps_si512(v);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
      const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
      const __m512i kept = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
      return;
    }
#endif
    C wide[lanes<C>];
    store(wide, v);
    for (index_t l = 0; l < lanes<C>; ++l) p[l] = T(static_cast<compute_t<T>>(wide[l]));
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
