// SPDX-License-Identifier: Apache-2.0
/// @file value_scale.hpp  The power of two that brings a channel's values near 1.
#pragma once

#include <cmath>

#include "exp.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// scale * largest lies in [0.5, 1) where the format allows, and scale * unscale = 1 exactly. Without it a weight
/// of 2^-60 times a value of 1e-30 is lost, though a row may see nothing else. No value, or none finite: 1.
template <class C>
inline void value_scale(C largest, C& scale, C& unscale) {
  // 2^-e and 2^e must both be normal numbers.
  constexpr int most = static_cast<int>(exp_constants<C>::bias) - 1;
  int e = 0;
  if (largest > C(0) && largest <= exp_constants<C>::largest) {
    (void)std::frexp(largest, &e);
    e = e > most ? most : (e < -most ? -most : e);
  }
  scale = std::ldexp(C(1), -e);
  unscale = std::ldexp(C(1), e);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
