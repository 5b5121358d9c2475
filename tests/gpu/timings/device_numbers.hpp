// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <aft/core/numeric.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ceilings.hpp"

namespace aft::gpu {

/// A device tensor of reproducible numbers around 0.
template <class T>
class device_numbers {
 public:
  explicit device_numbers(index_t n, float scale = 1) {
    data_ = static_cast<T*>(take_device(static_cast<std::size_t>(std::max<index_t>(n, 1)) * sizeof(T)));
    std::vector<T> block(1 << 16);
    std::uint32_t random = 12345;
    for (T& x : block) {
      random = random * 1664525u + 1013904223u;
      const float unit = static_cast<float>(random >> 8) / static_cast<float>(1 << 24) - 0.5f;
      x = T(unit * 3.4f * scale);
    }
    for (index_t at = 0; at < n; at += static_cast<index_t>(block.size())) {
      const auto count = static_cast<std::size_t>(std::min<index_t>(n - at, static_cast<index_t>(block.size())));
      copy_to_device(data_ + at, block.data(), count * sizeof(T));
    }
  }
  device_numbers(device_numbers&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  device_numbers(const device_numbers&) = delete;
  device_numbers& operator=(const device_numbers&) = delete;
  ~device_numbers() { give_device(data_); }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

}  // namespace aft::gpu
