// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: inputs that lead to code which none before has reached.
#include <cstdlib>

#include "check_call.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!fuzz::check_call(data, size)) std::abort();
  return 0;
}
