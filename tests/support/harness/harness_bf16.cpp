// SPDX-License-Identifier: Apache-2.0
#include "typed_harness.hpp"

namespace aft::test {
const typed_functions functions_bf16 = [] {
  typed_functions all = detail::functions_of<bfloat16>();
  if (aft::cpu_impl::has_bf16_dot<float>) {
    all.pair_error = pair_rounding;
#if defined(__aarch64__)
    // BFDOT rounds each of a block's sums to odd, num and den: a unit off at most, once for the two products and once
    // for the total. Blocks are added by floats.
    all.pair_error += 2 * 2 * static_cast<long double>(aft::cpu_impl::tuning<float>::KC / 2) * 0x1p-23L;
#endif
  }
  return all;
}();
}  // namespace aft::test
