// SPDX-License-Identifier: Apache-2.0
/// @file simd.hpp  The few vector operations the backend uses, and all that differs between xsimd generations.
#pragma once

#include <cstdint>
#include <limits>

#include <aft/core/config.hpp>

// GCC 12 reports the undefined pass-through operands inside its own AVX-512 intrinsics as uninitialised reads.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <xsimd/xsimd.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The widest vector that the compiler flags allow. Only this header and the files above it know xsimd.
template <class C>
using vec = xsimd::batch<C>;
template <class C>
using vec_mask = xsimd::batch_bool<C>;

/// Elements per vector.
template <class C>
inline constexpr index_t lanes = static_cast<index_t>(vec<C>::size);

template <class C>
struct bits_of;
template <>
struct bits_of<float> {
  using type = std::int32_t;
};
template <>
struct bits_of<double> {
  using type = std::int64_t;
};
template <class C>
using ivec = xsimd::batch<typename bits_of<C>::type>;

template <class C>
inline vec<C> load(const C* p) {
  return vec<C>::load_unaligned(p);
}
template <class C>
inline void store(C* p, const vec<C>& v) {
  v.store_unaligned(p);
}

/// Keeps the compiler from loading a value again for every use.
template <class C>
[[gnu::always_inline]] inline void keep_in_register([[maybe_unused]] vec<C>& x) {
#if defined(__AVX512F__)
  asm("" : "+v"(x.data));
#endif
}

/// Keeps the compiler from making further variables that run beside one of a loop.
template <class T>
[[gnu::always_inline]] inline void keep_single([[maybe_unused]] T& x) {
#if defined(__GNUC__)
  asm("" : "+r"(x));
#endif
}

#if XSIMD_VERSION_MAJOR >= 9
template <class C>
inline ivec<C> to_bits(const vec<C>& v) {
  return xsimd::bitwise_cast<typename bits_of<C>::type>(v);
}
template <class C>
inline vec<C> from_bits(const ivec<C>& v) {
  return xsimd::bitwise_cast<C>(v);
}
#else
template <class C>
inline ivec<C> to_bits(const vec<C>& v) {
  return xsimd::bitwise_cast<ivec<C>>(v);
}
template <class C>
inline vec<C> from_bits(const ivec<C>& v) {
  return xsimd::bitwise_cast<vec<C>>(v);
}
#endif

/// a * b + c with one rounding wherever the instruction set has it. xsimd 8 has no AVX-512 version: its a * b + c is
/// fused only if the compiler cares to, which then depends on what it was inlined into, and bits with it.
template <class C>
inline vec<C> mul_add(const vec<C>& a, const vec<C>& b, const vec<C>& c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_fmadd_ps(a, b, c));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_fmadd_pd(a, b, c));
#endif
  return xsimd::fma(a, b, c);
}

/// The sum of the lanes of x[0], of x[1] and so on, for as many vectors as a vector has lanes.
template <class C>
inline vec<C> lane_sums(const vec<C>* x) {
#if defined(__AVX512F__)
  // xsimd 8 returns these in another order.
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    const auto quarter = [&](int i) {
      const __m512 a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
      const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
      const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
      return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    };
    const auto join = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    };
    return vec<C>(join(join(quarter(0), quarter(4)), join(quarter(8), quarter(12))));
  }
#endif
  return xsimd::haddp(x);
}

/// True where a and b differ or either is NaN. (xsimd's != calls NaN different before AVX only.)
template <class C>
inline vec_mask<C> differs(const vec<C>& a, const vec<C>& b) {
  return !(a == b);
}

/// The larger of the two, where a NaN in x is passed over and one in acc stays. x86 defines its max as just that: where
/// one operand is NaN the second is returned. (xsimd's own differs between generations in which operand a NaN yields,
/// and compare + blend are two instructions where a kernel has twenty.)
template <class C>
inline vec<C> max_ignoring_nan(const vec<C>& acc, const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_max_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_max_pd(x, acc));
#elif defined(__AVX__)
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 4) return vec<C>(_mm256_max_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 8) return vec<C>(_mm256_max_pd(x, acc));
#endif
  return xsimd::select(x > acc, x, acc);
}
template <class C>
inline vec<C> min_ignoring_nan(const vec<C>& acc, const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_min_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_min_pd(x, acc));
#elif defined(__AVX__)
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 4) return vec<C>(_mm256_min_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 8) return vec<C>(_mm256_min_pd(x, acc));
#endif
  return xsimd::select(x < acc, x, acc);
}

/// The larger of acc and |x|, acc being no less than 0; a NaN in x is passed over.
template <class C>
inline vec<C> larger_size(const vec<C>& acc, const vec<C>& x) {
#if defined(__AVX512DQ__)
  // 11: by absolute value; 10: without its sign.
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_range_ps(acc, x, 0b1011));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_range_pd(acc, x, 0b1011));
#endif
  return max_ignoring_nan<C>(acc, (xsimd::abs)(x));
}

/// The largest of |x|, and the least that is not 0, over the lanes of `seen`; `low` is positive, and a NaN in x is
/// passed over.
template <class C>
inline void add_sizes(const vec_mask<C>& seen, const vec<C>& x, vec<C>& high, vec<C>& low) {
#if defined(__AVX512DQ__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    const __mmask16 lanes_seen = seen.data;
    const __mmask16 some = _mm512_mask_cmp_ps_mask(lanes_seen, x, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    high = vec<C>(_mm512_mask_range_ps(high, some, high, x, 0b1011));
    low = vec<C>(_mm512_mask_range_ps(low, some, low, x, 0b1010));
    return;
  }
#endif
  const vec<C> size = xsimd::select(seen, (xsimd::abs)(x), vec<C>(C(0)));
  high = max_ignoring_nan<C>(high, size);
  low = xsimd::select(size > vec<C>(C(0)), min_ignoring_nan<C>(low, size), low);
}

/// a where `mask`, else b. Without optimisation AVX-512 intrinsics are macros that cast their operands, and the
/// branches that xsimd 8 has in its own for integers of other sizes then fail to compile.
template <class C>
inline ivec<C> select_bits(const xsimd::batch_bool<typename bits_of<C>::type>& mask, const ivec<C>& a,
                           const ivec<C>& b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(ivec<C>) == 64 && sizeof(C) == 4) {
    return ivec<C>(_mm512_mask_blend_epi32(mask.data, b, a));
  } else if constexpr (sizeof(ivec<C>) == 64) {
    return ivec<C>(_mm512_mask_blend_epi64(mask.data, b, a));
  } else
#endif
  {
    return xsimd::select(mask, a, b);
  }
}

/// The extremes of many numbers by their bits, in which sizes are ordered and NaN lies beyond inf: integer operations
/// run on all of a core's vector ports, where a comparison and the mask that it joins run on two (Zen 5).
template <class C>
class seen_range {
 public:
  /// Not below 0, or NaN.
  void add(const vec<C>& x) {
    most_ = (xsimd::max)(most_, to_bits(x));
    least_ = (xsimd::min)(least_, to_bits(x));
  }
  /// The same where 0 is no less than any.
  void add_unless_zero(const vec<C>& x) {
    const ivec<C> bits = to_bits(x);
    most_ = (xsimd::max)(most_, bits);
    least_ = (xsimd::min)(least_, select_bits<C>(bits == ivec<C>(0), least_, bits));
  }
  /// Lanes that have seen nothing outside [low, high]. A NaN of either sign is outside.
  vec_mask<C> within(C low, C high) const {
    return (from_bits<C>(most_) <= vec<C>(high)) && (from_bits<C>(least_) >= vec<C>(low));
  }

 private:
  ivec<C> most_ = to_bits(vec<C>(C(0))), least_ = to_bits(vec<C>(std::numeric_limits<C>::infinity()));
};

/// The largest size alone, of numbers of any sign, or NaN.
template <class C>
class seen_size {
 public:
  void add(const vec<C>& x) { most_ = (xsimd::max)(most_, to_bits((xsimd::abs)(x))); }
  vec<C> largest() const { return from_bits<C>(most_); }
  vec_mask<C> within(C high) const { return largest() <= vec<C>(high); }

 private:
  ivec<C> most_ = to_bits(vec<C>(C(0)));
};

/// The largest of the lanes, none of which is NaN.
template <class C>
inline C largest_lane(const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return _mm512_reduce_max_ps(x);
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return _mm512_reduce_max_pd(x);
#endif
  C lane[lanes<C>];
  store(lane, x);
  C top = lane[0];
  for (index_t l = 1; l < lanes<C>; ++l) top = lane[l] > top ? lane[l] : top;
  return top;
}

#if defined(__AVX512F__)
/// Rows of a 16 x 16 block become its columns.
inline void transpose(vec<float> (&rows)[16]) {
  static_assert(lanes<float> == 16);
  __m512 a[16], b[16];
#pragma GCC unroll 8
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
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    b[i] = low(a[i], a[i + 2]);
    b[i + 1] = high(a[i], a[i + 2]);
    b[i + 2] = low(a[i + 1], a[i + 3]);
    b[i + 3] = high(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 4
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
/// Loads the first n lanes, which alone need exist.
inline vec<float> load_first(const float* p, index_t n) {
  return vec<float>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p));
}
/// Stores the first n lanes, and touches no byte beyond them.
template <index_t n>
inline void store_first(float* p, const vec<float>& v) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
#elif defined(__AVX2__)
/// Rows of an 8 x 8 block become its columns.
inline void transpose(vec<float> (&rows)[8]) {
  static_assert(lanes<float> == 8);
  __m256 a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  // b[4 g + j]: column 4 q + j of rows 4 g ... 4 g + 3 in 128-bit part q.
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
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

/// to[s * ld + t] = from[t * step + s] for t < rows <= lanes and s < n.
template <class C>
inline void transpose_columns(const C* from, index_t step, index_t rows, index_t n, C* to, index_t ld) {
  if constexpr (turns_rows<C>) {
    for (index_t s = 0; rows == lanes<C> && s < n; s += lanes<C>) {
      const index_t count = n - s < lanes<C> ? n - s : lanes<C>;
      vec<C> block[lanes<C>];
#pragma GCC unroll 16
      for (index_t t = 0; t < lanes<C>; ++t) block[t] = load_first(from + t * step + s, count);
      transpose(block);
      for (index_t i = 0; i < count; ++i) store(to + (s + i) * ld, block[i]);
    }
    if (rows == lanes<C>) return;
  }
  for (index_t t = 0; t < rows; ++t)
    for (index_t s = 0; s < n; ++s) to[s * ld + t] = from[t * step + s];
}

// Through integers, since arithmetic on a pointer must stay inside its array.
// NOLINTBEGIN(performance-no-int-to-ptr)
/// Asks for the line that lies `ahead` elements from p, which need not exist. Inlined by force: GCC 12 drops calls of
/// functions that only prefetch.
template <class C>
[[gnu::always_inline]] inline void prefetch(const C* p, index_t ahead) {
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                                   static_cast<std::uintptr_t>(ahead) * sizeof(C)));
}

/// The same, to the second-level cache.
template <class C>
[[gnu::always_inline]] inline void prefetch_second(const C* p, index_t ahead) {
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                                   static_cast<std::uintptr_t>(ahead) * sizeof(C)),
                     0, 2);
}

/// The same for a line that will be used once: other caches than the first-level one keep what they have.
template <class C>
[[gnu::always_inline]] inline void prefetch_once(const C* p, index_t ahead) {
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                                   static_cast<std::uintptr_t>(ahead) * sizeof(C)),
                     0, 0);
}

/// The same for a line that will be written.
template <class C>
[[gnu::always_inline]] inline void prefetch_to_write(const C* p, index_t ahead) {
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                                   static_cast<std::uintptr_t>(ahead) * sizeof(C)),
                     1);
}

// NOLINTEND(performance-no-int-to-ptr)

/// A store to an address aligned to the vector that does not read the line first nor keeps it in the caches: for whole
/// lines of arrays that no cache holds, or of rows that threads share. Other threads see it after fence_stores().
template <class C>
inline void store_around(C* p, const vec<C>& v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return _mm512_stream_ps(p, v);
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return _mm512_stream_pd(p, v);
#elif defined(__AVX__)
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 4) return _mm256_stream_ps(p, v);
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 8) return _mm256_stream_pd(p, v);
#endif
  store(p, v);
}
/// Either kind of store.
template <class C>
inline void put(C* p, const vec<C>& v, bool around) {
  if (around) {
    store_around(p, v);
  } else {
    store(p, v);
  }
}
inline void fence_stores() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
