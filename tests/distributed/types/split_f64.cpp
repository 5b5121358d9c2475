// SPDX-License-Identifier: Apache-2.0
#include "distributed/typed_split.hpp"

namespace aft::test {
const split_functions split_f64 = split_functions_of<double>();
}  // namespace aft::test
