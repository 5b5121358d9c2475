// SPDX-License-Identifier: Apache-2.0
#include "distributed/typed_split.hpp"

namespace aft::test {
const split_functions split_bf16 = split_functions_of<bfloat16>();
}  // namespace aft::test
