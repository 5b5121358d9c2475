// SPDX-License-Identifier: Apache-2.0
#include "typed_harness.hpp"

namespace aft::test {
const typed_functions functions_bf16 = [] {
  typed_functions all = detail::functions_of<bfloat16>();
  all.pairs = aft::cpu_impl::has_bf16_dot<float>;
  return all;
}();
}  // namespace aft::test
