// SPDX-License-Identifier: Apache-2.0
/// @file softmax/exact_result.hpp  What the exact path of one row gives, whichever engine walks its keys.
#pragma once

#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
struct exact_row_result {
  C average[lanes<C>];  ///< num / den * inverse scale
  C num[lanes<C>];
  C den[lanes<C>];
  C inverse_scale[lanes<C>];
  C lse[lanes<C>];
  C inverse[lanes<C>];
  C exponent[lanes<C>];
  C base_hi[lanes<C>];
  C base_lo[lanes<C>];
};

}  // namespace aft::inline AFT_ISA::cpu_impl
