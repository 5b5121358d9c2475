// SPDX-License-Identifier: Apache-2.0
/// @file simd/vec.hpp  The few vector operations the backend uses, and all that differs between xsimd generations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <aft/core/config.hpp>
#include <aft/math/integers.hpp>

#include "arch.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The widest vector that the compiler flags allow. Only this header and the files above it know xsimd.
template <class C>
using vec = xsimd::batch<C, vector_arch>;
template <class C>
using vec_mask = xsimd::batch_bool<C, vector_arch>;

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
using ivec = xsimd::batch<typename bits_of<C>::type, vector_arch>;

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

/// For clang, after the last use of a value that was loaded: it would put the result of that use where the value was,
/// and, if that is a sum, copy the sum there first, two copies for four multiply-adds of the stencil. Only where they
/// are one instruction: a product by itself needs that register.
template <class C>
AFT_INLINE void hold_until_here([[maybe_unused]] const vec<C>& x) {
#if defined(__clang__) && defined(__FMA__)
  asm volatile("" : : "v"(x.data));
#endif
}

/// Keeps the compiler from making further variables that run beside one of a loop.
template <class T>
[[gnu::always_inline]] inline void keep_single([[maybe_unused]] T& x) {
#if defined(__GNUC__)
  asm("" : "+r"(x));
#endif
}

#if defined(AFT_NEON64)
// xsimd 8 looks the instruction up in a table of functions, which GCC 12 fills anew for every cast, on the stack: three
// stores and as many loads beside each exp.
template <class C>
[[gnu::always_inline]] inline ivec<C> to_bits(const vec<C>& v) {
  return ivec<C>(__builtin_bit_cast(typename ivec<C>::register_type, v.data));
}
template <class C>
[[gnu::always_inline]] inline vec<C> from_bits(const ivec<C>& v) {
  return vec<C>(__builtin_bit_cast(typename vec<C>::register_type, v.data));
}
#elif XSIMD_VERSION_MAJOR >= 11
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
#if (defined(__SSE2__) || defined(__ARM_NEON)) && !defined(AFT_EMULATED_SIMD)
  return xsimd::haddp(x);
#else
  // Neighbours first, as those two do. xsimd 14 adds x[0] and x[1] twice for VSX and leaves x[2] and x[3] out.
  constexpr auto L = static_cast<std::size_t>(lanes<C>);
  C sums[L], lane[L];
  for (std::size_t i = 0; i < L; ++i) {
    store(lane, x[i]);
    for (std::size_t n = L / 2; n > 0; n /= 2)
      for (std::size_t l = 0; l < n; ++l) lane[l] = lane[2 * l] + lane[2 * l + 1];
    sums[i] = lane[0];
  }
  return load(sums);
#endif
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
inline ivec<C> select_bits(const vec_mask<typename bits_of<C>::type>& mask, const ivec<C>& a, const ivec<C>& b) {
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

// Through integers, since arithmetic on a pointer must stay inside its array.
// NOLINTBEGIN(performance-no-int-to-ptr)
/// Asks for the line that lies `ahead` elements from p, which need not exist. Inlined by force: GCC 12 drops calls of
/// functions that only prefetch.
template <class C>
[[gnu::always_inline]] inline void prefetch(const C* p, index_t ahead) {
  AFT_PREFETCH(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                             static_cast<std::uintptr_t>(ahead) * sizeof(C)));
}

/// The same, to the second-level cache.
template <class C>
[[gnu::always_inline]] inline void prefetch_second(const C* p, index_t ahead) {
  AFT_PREFETCH(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                             static_cast<std::uintptr_t>(ahead) * sizeof(C)),
               0, 2);
}

/// The same for a line that will be used once: other caches than the first-level one keep what they have.
template <class C>
[[gnu::always_inline]] inline void prefetch_once(const C* p, index_t ahead) {
  AFT_PREFETCH(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                             static_cast<std::uintptr_t>(ahead) * sizeof(C)),
               0, 0);
}

/// The same for a line that will be written.
template <class C>
[[gnu::always_inline]] inline void prefetch_to_write(const C* p, index_t ahead) {
  AFT_PREFETCH(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) +
                                             static_cast<std::uintptr_t>(ahead) * sizeof(C)),
               1);
}

// NOLINTEND(performance-no-int-to-ptr)

/// A store to an address aligned to the vector that does not read the line first nor keeps it in the caches: for whole
/// lines of arrays that no cache holds, or of rows that threads share. Other threads see it after fence_stores().
template <class C>
inline void store_streaming(C* p, const vec<C>& v) {
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
inline void put(C* p, const vec<C>& v, bool streamed) {
  if (streamed) {
    store_streaming(p, v);
  } else {
    store(p, v);
  }
}
inline void fence_stores() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

}  // namespace aft::inline AFT_ISA::cpu_impl
