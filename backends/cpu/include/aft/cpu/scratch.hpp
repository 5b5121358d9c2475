// SPDX-License-Identifier: Apache-2.0
/// @file scratch.hpp  Working memory of one call, from the caller's memory resource.
#pragma once

#include <memory_resource>
#include <new>

#include <aft/core/executors.hpp>

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Takes blocks from a memory resource and gives them all back at the end of the call, also when it throws. Used by
/// the calling thread only, before any output is written.
class scratch {
 public:
  explicit scratch(const cpu& exec) : from_(exec.memory != nullptr ? exec.memory : std::pmr::new_delete_resource()) {}
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    while (last_ != nullptr) {
      header* const h = last_;
      last_ = h->before;
      from_->deallocate(h, h->bytes, alignment);
    }
  }

  /// n elements, uninitialised, on a cache line. n may be 0.
  template <class T>
  T* take(index_t n) {
    const std::size_t bytes = alignment + static_cast<std::size_t>(n < 0 ? 0 : n) * sizeof(T);
    void* const raw = from_->allocate(bytes, alignment);
    last_ = ::new (raw) header{last_, bytes};
    return reinterpret_cast<T*>(static_cast<std::byte*>(raw) + alignment);
  }

 private:
  static constexpr std::size_t alignment = 64;
  // The chain lives inside the blocks themselves, so nothing but the resource is asked for memory.
  struct header {
    header* before;
    std::size_t bytes;
  };
  static_assert(sizeof(header) <= alignment);
  std::pmr::memory_resource* from_;
  header* last_ = nullptr;
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
