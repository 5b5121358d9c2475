// SPDX-License-Identifier: Apache-2.0
#include "distributed/typed_split.hpp"

namespace aft::test {
const split_functions split_f16 = split_functions_of<half>();
}  // namespace aft::test
