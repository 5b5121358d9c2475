// SPDX-License-Identifier: Apache-2.0
/// @file memory.hpp  A memory resource that counts, and that can fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <new>

namespace aft::test {

/// Serves from new and delete. Knows how much is out, the most that ever was, the largest block of all, and what
/// remains when a call has ended; throws std::bad_alloc at the allocation number `fail_at` (counted from 0). Blocks are
/// aligned as asked and never better, so that whoever relies on more than that is found out.
class counting_resource : public std::pmr::memory_resource {
 public:
  static constexpr long never = -1;
  explicit counting_resource(long fail_at = never) : fail_at_(fail_at) {}

  std::size_t in_use() const { return in_use_; }
  std::size_t peak() const { return peak_; }
  std::size_t largest() const { return largest_; }
  long allocations() const { return allocations_; }
  bool failed() const { return failed_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (allocations_++ == fail_at_) {
      failed_ = true;
      throw std::bad_alloc();
    }
    void* const p = ::operator new (alignment + bytes, std::align_val_t{2 * alignment});
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    largest_ = std::max(largest_, bytes);
    return static_cast<std::byte*>(p) + alignment;
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    in_use_ -= bytes;
    ::operator delete (static_cast<std::byte*>(p) - alignment, std::align_val_t{2 * alignment});
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  long fail_at_;
  long allocations_ = 0;
  bool failed_ = false;
  std::size_t in_use_ = 0, peak_ = 0, largest_ = 0;
};

}  // namespace aft::test
