// SPDX-License-Identifier: Apache-2.0
/// @file own_engine.hpp  For programs whose calls no other engine serves: on the emulated device, which this program's
/// harness alone knows, or beside kernels of their own, whose bits are those of one instruction set.
#pragma once

#include <cstdlib>

namespace aft::test {
[[maybe_unused]] inline const int own_engine_alone = setenv("AFT_TEST_ENGINE", "own", 1);
}  // namespace aft::test
