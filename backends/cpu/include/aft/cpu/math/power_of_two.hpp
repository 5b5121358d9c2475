// SPDX-License-Identifier: Apache-2.0
/// @file math/power_of_two.hpp  The power of two that brings a channel's values near 1.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "exp.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Where all keys (all values, by their largest size) of a channel are of ordinary size, scale 1 serves as well: sums
/// of 2^30 such terms stay far from the ends of the range, and den may still fall by 2^48 before it proves nothing.
/// Powers of two do not change the bits of a sum.
template <class C>
struct ordinary {
  static constexpr C key_low = C(-8), key_high = C(32), value_low = C(0x1p-20), value_high = C(0x1p20);
};

/// scale * largest lies in [0.5, 1) where the format allows, and scale * inverse scale = 1 exactly. Without it a weight
/// of 2^-60 times a value of 1e-30 is lost, though a row may see nothing else. No value, or none finite: 1.
template <class C>
inline void value_scale(C largest, C& scale, C& inverse_scale) {
  using bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
  constexpr int mantissa = std::numeric_limits<C>::digits - 1;
  constexpr int bias = std::numeric_limits<C>::max_exponent - 1;
  // 2^-e and 2^e must both be normal numbers.
  constexpr int most = bias - 1;
  int e = 0;
  if (largest > C(0) && largest <= exp_constants<C>::largest) {
    // The exponent that frexp gives, -most for subnormal numbers. By hand: this runs lane by lane for every lane tile,
    // and frexp and ldexp were an eighth of a call on one position.
    e = static_cast<int>(std::bit_cast<bits>(largest) >> mantissa) - most;
    e = min_of(e, most);
  }
  scale = std::bit_cast<C>(static_cast<bits>(bias - e) << mantissa);
  inverse_scale = std::bit_cast<C>(static_cast<bits>(bias + e) << mantissa);
}

/// The exponent of a power of two that value_scale gave.
template <class C>
inline C scale_exponent(C power) {
  using bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
  constexpr int bias = std::numeric_limits<C>::max_exponent - 1;
  return static_cast<C>(static_cast<int>(std::bit_cast<bits>(power) >> (std::numeric_limits<C>::digits - 1)) - bias);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
