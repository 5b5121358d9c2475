// SPDX-License-Identifier: Apache-2.0
/// @file gradient_scale.hpp  The power of two that a call's upstream gradients are multiplied by for products of dw.
#pragma once

#include "value_scale.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Products with g are formed before weights of up to 2^40 multiply them: of gradients near the end of the range little
/// would be left by then. by * back = 1, both 1 for gradients of ordinary size; powers of two do not change the bits.
template <class C>
struct gradient_scale {
  C by = C(1);
  C back = C(1);
};

/// From the largest |g| that the lanes of every thread met, see gate_gradient.
template <class C>
inline gradient_scale<C> find_gradient_scale(int threads, const C* highs) {
  C most = C(0);
  for (index_t i = 0; i < threads * lanes<C>; ++i) most = highs[i] > most ? highs[i] : most;
  gradient_scale<C> scale;
  constexpr C least = exp_constants<C>::proof;
  if (most > C(0) && (most < least || most > C(1) / least)) value_scale(most, scale.by, scale.back);
  return scale;
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
