// SPDX-License-Identifier: Apache-2.0
/// @file simd/transpose.hpp  Rows of vectors turned into columns, and parts of a vector read and written alone.
#pragma once

#include "vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

#if defined(__AVX512F__)
/// Rows of a 16 x 16 block become its columns.
inline void transpose(vec<float> (&rows)[16]) {
  static_assert(lanes<float> == 16);
  __m512 a[16], b[16];
  AFT_UNROLL(8)
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  const auto low = [](__m512 x, __m512 y) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  };
  const auto high = [](__m512 x, __m512 y) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  };
  // b[4 g + j]: column 4 q + j of rows 4 g ... 4 g + 3 in 128-bit part q.
  AFT_UNROLL(4)
  for (int i = 0; i < 16; i += 4) {
    b[i] = low(a[i], a[i + 2]);
    b[i + 1] = high(a[i], a[i + 2]);
    b[i + 2] = low(a[i + 1], a[i + 3]);
    b[i + 3] = high(a[i + 1], a[i + 3]);
  }
  AFT_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    const __m512 even0 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
    const __m512 odd0 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
    const __m512 even1 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    const __m512 odd1 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
    rows[j] = vec<float>(_mm512_shuffle_f32x4(even0, even1, 0x88));
    rows[4 + j] = vec<float>(_mm512_shuffle_f32x4(odd0, odd1, 0x88));
    rows[8 + j] = vec<float>(_mm512_shuffle_f32x4(even0, even1, 0xdd));
    rows[12 + j] = vec<float>(_mm512_shuffle_f32x4(odd0, odd1, 0xdd));
  }
}
/// Rows of an 8 x 8 block become its columns.
inline void transpose(vec<double> (&rows)[8]) {
  static_assert(lanes<double> == 8);
  __m512d a[8];
  // a[2 g + j]: column 2 q + j of rows 2 g and 2 g + 1 in 128-bit part q.
  AFT_UNROLL(4)
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_pd(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_pd(rows[i], rows[i + 1]);
  }
  AFT_UNROLL(2)
  for (int j = 0; j < 2; ++j) {
    const __m512d even0 = _mm512_shuffle_f64x2(a[j], a[2 + j], 0x88);
    const __m512d odd0 = _mm512_shuffle_f64x2(a[j], a[2 + j], 0xdd);
    const __m512d even1 = _mm512_shuffle_f64x2(a[4 + j], a[6 + j], 0x88);
    const __m512d odd1 = _mm512_shuffle_f64x2(a[4 + j], a[6 + j], 0xdd);
    rows[j] = vec<double>(_mm512_shuffle_f64x2(even0, even1, 0x88));
    rows[2 + j] = vec<double>(_mm512_shuffle_f64x2(odd0, odd1, 0x88));
    rows[4 + j] = vec<double>(_mm512_shuffle_f64x2(even0, even1, 0xdd));
    rows[6 + j] = vec<double>(_mm512_shuffle_f64x2(odd0, odd1, 0xdd));
  }
}
/// Loads the first n lanes, which alone need exist.
inline vec<float> load_first(const float* p, index_t n) {
  return vec<float>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p));
}
inline vec<double> load_first(const double* p, index_t n) {
  return vec<double>(_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p));
}
/// Stores the first n lanes, and touches no byte beyond them.
template <index_t n>
inline void store_first(float* p, const vec<float>& v) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
template <index_t n>
inline void store_first(double* p, const vec<double>& v) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), v);
}
#elif defined(__AVX2__)
/// Rows of an 8 x 8 block become its columns.
inline void transpose(vec<float> (&rows)[8]) {
  static_assert(lanes<float> == 8);
  __m256 a[8], b[8];
  AFT_UNROLL(4)
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  // b[4 g + j]: column 4 q + j of rows 4 g ... 4 g + 3 in 128-bit part q.
  AFT_UNROLL(2)
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
  AFT_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    rows[j] = vec<float>(_mm256_permute2f128_ps(b[j], b[4 + j], 0x20));
    rows[4 + j] = vec<float>(_mm256_permute2f128_ps(b[j], b[4 + j], 0x31));
  }
}
inline vec<float> load_first(const float* p, index_t n) {
  const __m256i places = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
  return vec<float>(_mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), places)));
}
/// In parts of a whole register: a store by a mask takes a dozen cycles on some processors.
template <index_t n>
inline void store_first(float* p, const vec<float>& v) {
  static_assert(n == 6);
  const __m256 all = v;
  _mm_storeu_ps(p, _mm256_castps256_ps128(all));
  _mm_storel_pi(reinterpret_cast<__m64*>(p + 4), _mm256_extractf128_ps(all, 1));
}
#elif defined(AFT_NEON64)
/// Rows of a 4 x 4 block become its columns.
inline void transpose(vec<float> (&rows)[4]) {
  const float32x4x2_t a = vzipq_f32(rows[0], rows[2]), b = vzipq_f32(rows[1], rows[3]);
  const float32x4x2_t low = vzipq_f32(a.val[0], b.val[0]), high = vzipq_f32(a.val[1], b.val[1]);
  rows[0] = vec<float>(low.val[0]);
  rows[1] = vec<float>(low.val[1]);
  rows[2] = vec<float>(high.val[0]);
  rows[3] = vec<float>(high.val[1]);
}
inline void transpose(vec<double> (&rows)[2]) {
  const float64x2_t a = rows[0], b = rows[1];
  rows[0] = vec<double>(vzip1q_f64(a, b));
  rows[1] = vec<double>(vzip2q_f64(a, b));
}
inline vec<float> load_first(const float* p, index_t n) {
  if (n >= 4) return load(p);
  const float32x2_t low = n >= 2 ? vld1_f32(p) : vld1_lane_f32(p, vdup_n_f32(0), 0);
  const float32x2_t high = n == 3 ? vld1_lane_f32(p + 2, vdup_n_f32(0), 0) : vdup_n_f32(0);
  return vec<float>(vcombine_f32(low, high));
}
inline vec<double> load_first(const double* p, index_t n) {
  return n >= 2 ? load(p) : vec<double>(vcombine_f64(vld1_f64(p), vdup_n_f64(0)));
}
#endif

/// n numbers in the lanes from `at` on, those of `others` beside them.
template <class C>
inline vec<C> load_lanes(const C* p, index_t at, index_t n, const vec<C>& others) {
#if defined(__AVX512F__)
  if constexpr (lanes<C> == 16) {
    return vec<C>(_mm512_mask_expandloadu_ps(others, static_cast<__mmask16>(((1u << n) - 1) << at), p));
  }
#elif defined(__AVX2__)
  if constexpr (lanes<C> == 8) {
    const __m256i places = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i first = _mm256_set1_epi32(static_cast<int>(at - 1)),
                  last = _mm256_set1_epi32(static_cast<int>(at + n));
    const __m256i wanted = _mm256_and_si256(_mm256_cmpgt_epi32(places, first), _mm256_cmpgt_epi32(last, places));
    // NOLINTNEXTLINE(performance-no-int-to-ptr): lanes before `at` need not lie in any array
    const auto* const from = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(p) -
                                                            static_cast<std::uintptr_t>(at) * sizeof(float));
    return vec<C>(_mm256_blendv_ps(others, _mm256_maskload_ps(from, wanted), _mm256_castsi256_ps(wanted)));
  }
#endif
  C all[lanes<C>];
  store(all, others);
  for (index_t i = 0; i < n; ++i) all[at + i] = p[i];
  return load(all);
}

/// Whether rows are turned into columns in registers.
template <class C>
inline constexpr bool turns_rows = requires(vec<C> (&block)[lanes<C>]) {
  transpose(block);
};

/// p[first + l] = lane l of v, of the lanes that are rows of a tile of M.
template <index_t M, class C>
inline void store_tile_rows(C* p, index_t first, const vec<C>& v) {
  constexpr index_t rest = M % lanes<C>;
  if constexpr (rest != 0) {
    if (first + rest == M) return store_first<rest>(p + first, v);
  }
  store(p + first, v);
}

/// to[s * ld + t] = from[t * step + s] for t < rows <= lanes and s < n.
template <class C>
inline void transpose_columns(const C* from, index_t step, index_t rows, index_t n, C* to, index_t ld) {
  if constexpr (turns_rows<C>) {
    AFT_UNROLL(1)
    for (index_t s = 0; rows == lanes<C> && s < n; s += lanes<C>) {
      const index_t count = n - s < lanes<C> ? n - s : lanes<C>;
      vec<C> block[lanes<C>];
      AFT_UNROLL(16)
      for (index_t t = 0; t < lanes<C>; ++t) block[t] = load_first(from + t * step + s, count);
      transpose(block);
      for (index_t i = 0; i < count; ++i) store(to + (s + i) * ld, block[i]);
    }
    if (rows == lanes<C>) return;
  }
  for (index_t t = 0; t < rows; ++t)
    for (index_t s = 0; s < n; ++s) to[s * ld + t] = from[t * step + s];
}

}  // namespace aft::inline AFT_ISA::cpu_impl
