// SPDX-License-Identifier: Apache-2.0
/// @file gpu_memory.hpp  Tensors in page-locked memory, which host and GPU read and write under one address.
#pragma once

#include <cstddef>

namespace aft::test {

void* take_locked(std::size_t bytes);
void give_locked(void* p, std::size_t bytes) noexcept;

template <class T>
struct tensor_allocator {
  using value_type = T;
  tensor_allocator() = default;
  template <class U>
  tensor_allocator(const tensor_allocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(take_locked(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { give_locked(p, n * sizeof(T)); }
  template <class U>
  bool operator==(const tensor_allocator<U>&) const {
    return true;
  }
};

/// Waits for the GPU; a failure of its work is a device_error.
void finish_device_work();

}  // namespace aft::test
