// SPDX-License-Identifier: Apache-2.0
#include "typed_harness.hpp"

namespace aft::test {
const typed_functions functions_f32 = detail::functions_of<float>();
}  // namespace aft::test
