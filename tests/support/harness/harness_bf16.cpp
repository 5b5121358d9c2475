// SPDX-License-Identifier: Apache-2.0
#include "typed_harness.hpp"

#if defined(AFT_COMPILED)
#include <aft/cpu/gemm/tuning.hpp>

#include <string_view>
#endif

namespace aft::test {
const typed_functions functions_bf16 = [] {
  typed_functions all = detail::functions_of<bfloat16>();
#if defined(AFT_COMPILED)
  const bool pairs = std::string_view(aft::isa()).ends_with("-bf16");
#else
  constexpr bool pairs = aft::cpu_impl::has_bf16_dot<float>;
#endif
  if (pairs) {
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
