// SPDX-License-Identifier: Apache-2.0
/// @file emulated_device.hpp  What the C interface asked of the two devices of a machine that is none.
#pragma once

namespace aft::test {

struct emulated_devices {
  static constexpr int count = 2;
  int current = 1;         ///< as if the program had chosen it
  int asked = -2;          ///< by the last call that got so far
  void* stream = nullptr;  ///< that call's
};
emulated_devices& state_of_devices();

}  // namespace aft::test
