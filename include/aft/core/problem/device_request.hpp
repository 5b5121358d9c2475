// SPDX-License-Identifier: Apache-2.0
/// @file problem/device_request.hpp  What a call over several ranks asks of a device besides its kernels: memory, and
/// to move elements between the caller's tensors, that memory and the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config.hpp"

namespace aft {

/// Elements of a tensor of up to five axes, `size` bytes each. Strides in elements; 0 repeats one.
struct element_block {
  static constexpr int axes = 5;

  std::byte* data = nullptr;
  index_t size = 1;  ///< 1, 2, 4 or 8
  index_t extents[axes] = {1, 1, 1, 1, 1};
  index_t strides[axes] = {};

  index_t count() const {
    index_t n = 1;
    for (const index_t extent : extents) n *= extent;
    return n;
  }
  /// Strides of elements that lie one behind the other.
  void set_contiguous() {
    index_t step = 1;
    for (int i = axes - 1; i >= 0; --i) {
      strides[i] = step;
      step *= extents[i];
    }
  }
};

/// All of it but `begin` and `take` is done in the order of the stream.
enum class device_action : std::uint8_t {
  begin,      ///< device_error where the stream is being captured, as the call is going to wait for it
  take,       ///< `device` becomes `bytes` bytes of memory
  give,       ///< back, `device` and `bytes` as they were
  to_device,  ///< `bytes` from `host`, which stays as it is until the next wait
  to_host,    ///< `bytes` to `host`; waits
  copy,       ///< elements, all on the device; extents are those of `to`
  wait
};

/// One of them, for the call named `op`. A device that fails is a device_error.
struct device_request {
  device_action what = device_action::wait;
  const char* op = "";
  void* device = nullptr;
  void* host = nullptr;
  std::size_t bytes = 0;
  element_block to{}, from{};
};

}  // namespace aft
