// SPDX-License-Identifier: Apache-2.0
/// @file simd/lane_products.hpp  Multiply-adds that take one factor from a lane, where the target has them (NEON of
/// aarch64): as many broadcasts as a vector has lanes are then one load.
#pragma once

#include "vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

#if defined(AFT_NEON64)

template <class C>
inline constexpr bool has_lane_products = true;

/// a[lane] * b + c with one rounding.
template <index_t lane>
[[gnu::always_inline]] inline vec<float> mul_add_lane(const vec<float>& a, const vec<float>& b, const vec<float>& c) {
  return vec<float>(vfmaq_laneq_f32(c, b, a, static_cast<int>(lane)));
}
template <index_t lane>
[[gnu::always_inline]] inline vec<double> mul_add_lane(const vec<double>& a, const vec<double>& b,
                                                       const vec<double>& c) {
  return vec<double>(vfmaq_laneq_f64(c, b, a, static_cast<int>(lane)));
}

#else

template <class C>
inline constexpr bool has_lane_products = false;

#endif

}  // namespace aft::inline AFT_ISA::cpu_impl
