// SPDX-License-Identifier: Apache-2.0
/// @file runtime/arena.hpp  Memory for calls within a call, which give back what they took in reverse.
#pragma once

#include "workspace.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// A stack of bytes that somebody else holds, for scratch, which gives its blocks back from the last one on. What does
/// not fit comes from `beyond`. For one thread at a time.
class arena final : public std::pmr::memory_resource {
 public:
  arena(std::byte* first, std::size_t bytes, std::pmr::memory_resource* beyond)
      : first_(first), bytes_(bytes), beyond_(beyond) {}

  /// The most that was taken at a time, rounded as it would be on the stack.
  std::size_t peak() const { return peak_; }
  static constexpr std::size_t alignment = 64;

 private:
  void* do_allocate(std::size_t wanted, std::size_t) override {
    const std::size_t size = round_up(wanted, alignment);
    void* const taken = used_ + size <= bytes_ ? first_ + used_ : scratch::take_from(*beyond_, wanted);
    used_ += size;
    peak_ = max_of(peak_, used_);
    return taken;
  }
  void do_deallocate(void* block, std::size_t wanted, std::size_t) override {
    used_ -= round_up(wanted, alignment);
    const auto at = reinterpret_cast<std::uintptr_t>(block), first = reinterpret_cast<std::uintptr_t>(first_);
    if (at < first || at >= first + bytes_) scratch::give_back(*beyond_, block, wanted);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::byte* first_;
  std::size_t bytes_;
  std::pmr::memory_resource* beyond_;
  std::size_t used_ = 0, peak_ = 0;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
