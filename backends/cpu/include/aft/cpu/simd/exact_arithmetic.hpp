// SPDX-License-Identifier: Apache-2.0
/// @file simd/exact_arithmetic.hpp  Refuses vector operations that were parsed under flags of fast mathematics.
#pragma once

#include "vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

// Clang gives every operation the licences that hold where it is parsed. aft.hpp takes them back around itself and what
// it includes first, but a program that has included the vector intrinsics before (Eigen does, and <random>) has them
// with the licences, in functions that are inlined here. No macro tells, and the compiler's own conclusions do:
// what it can know about an unknown x only where it may reorder, or forget signed zeros, NaN or infinities.
#if defined(__clang__) && defined(__has_attribute) && (defined(__x86_64__) || defined(__aarch64__)) && \
    !defined(AFT_EMULATED_SIMD)
#if __has_attribute(error)
#define AFT_ASKS_COMPILER
#endif
#endif

#if defined(AFT_ASKS_COMPILER)
[[gnu::error(
    "aft does not work with vector intrinsics that were included before aft.hpp under parts of -ffast-math: "
    "include <aft/aft.hpp> first, or compile this file without them")]] void
included_under_fast_math();

/// A vector of which the compiler knows nothing; no instruction.
template <class C>
[[gnu::always_inline]] inline vec<C> unknown_vector() {
  vec<C> x(C(0));
#if defined(__x86_64__)
  asm("" : "+x"(x.data));
#else
  asm("" : "+w"(x.data));
#endif
  return x;
}

template <class C>
[[gnu::always_inline]] inline bool same_bits(const vec<C>& x, const vec<C>& y) {
  return __builtin_bit_cast(typename bits_of<C>::type, x.get(0)) ==
         __builtin_bit_cast(typename bits_of<C>::type, y.get(0));
}
#endif

/// Compiles to nothing, or not at all. Without optimisation nothing is concluded, and nothing reordered either.
template <class C>
[[gnu::always_inline]] inline void refuse_fast_math() {
#if defined(AFT_ASKS_COMPILER)
  const vec<C> x = unknown_vector<C>(), y = unknown_vector<C>(), three(C(3));
  const bool reordered = same_bits<C>((x + y) - x, y);
  const bool unsigned_zeros = same_bits<C>(x + vec<C>(C(0)), x);
  const bool reciprocals = same_bits<C>(x / three, x * vec<C>(C(1) / C(3)));
  // Equal, not unequal: with AVX-512, xsimd 8.1 has a != that NaN does not satisfy, so that any compiler knows x != x.
  const bool nans = (xsimd::all)(x == x);
  const bool infinities = (xsimd::any)(x == vec<C>(std::numeric_limits<C>::infinity()));
  if (__builtin_constant_p(reordered) || __builtin_constant_p(unsigned_zeros) || __builtin_constant_p(reciprocals) ||
      __builtin_constant_p(nans) || __builtin_constant_p(infinities))
    included_under_fast_math();
#endif
}

}  // namespace aft::inline AFT_ISA::cpu_impl
