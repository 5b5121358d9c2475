// SPDX-License-Identifier: Apache-2.0
// What the tensor unit reads of a kernel's memory, so watched by the sanitizers; and whether all sizes go there.
#include <cstdlib>

#include "device_emulator.hpp"

namespace aft::emulator {

void load_matrices(std::uint32_t (&words)[4], const void* row, const place& at) {
  const int lane = thread_index() % warp;
  std::memcpy(own_slot(), &row, sizeof row);
  const warp_slots all = meet(at);
  require_whole(all);
  for (int i = 0; i < 4; ++i) {
    const unsigned char* from = nullptr;
    std::memcpy(&from, all[8 * i + lane / 4], sizeof from);
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) fail("a row of a matrix that is not aligned to 16 bytes");
    std::memcpy(&words[i], from + 4 * (lane % 4), 4);
  }
}

products& current_products() {
  static products current = [] {
    const char* const device = std::getenv("AFT_TEST_ON_DEVICE");
    if (device != nullptr && std::strcmp(device, "tensor_cores") == 0) return products::forced;
    if (device != nullptr && std::strcmp(device, "warpgroups") == 0) return products::by_warpgroups;
    return products::chosen;
  }();
  return current;
}

bool product_forced() {
  return current_products() != products::chosen;
}

}  // namespace aft::emulator
