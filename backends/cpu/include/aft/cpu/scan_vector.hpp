// SPDX-License-Identifier: Apache-2.0
/// @file scan_vector.hpp  Maximum, minimum and scaling by powers of two in the fewest instructions the target has.
#pragma once

#include "exp.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {
namespace scan {

// The scan is bound by memory only as long as a key costs few instructions, and compare + blend for each maximum would
// be a sixth of them. x86 defines max and min exactly as needed: where one operand is NaN the second one is returned.

/// The larger of the two; a NaN in x is passed over, acc must not be NaN.
template <class C>
inline vec<C> larger(const vec<C>& acc, const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_max_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_max_pd(x, acc));
#elif defined(__AVX__)
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 4) return vec<C>(_mm256_max_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 8) return vec<C>(_mm256_max_pd(x, acc));
#endif
  return max_ignoring_nan<C>(acc, x);
}

/// The smaller of the two; a NaN in x is passed over, acc must not be NaN.
template <class C>
inline vec<C> smaller(const vec<C>& acc, const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) return vec<C>(_mm512_min_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 8) return vec<C>(_mm512_min_pd(x, acc));
#elif defined(__AVX__)
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 4) return vec<C>(_mm256_min_ps(x, acc));
  if constexpr (sizeof(vec<C>) == 32 && sizeof(C) == 8) return vec<C>(_mm256_min_pd(x, acc));
#endif
  return min_ignoring_nan<C>(acc, x);
}

}  // namespace scan
}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
