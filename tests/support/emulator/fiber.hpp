// SPDX-License-Identifier: Apache-2.0
/// @file fiber.hpp  A function with a stack of its own that can be left half-way and entered again.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

namespace aft::emulator {

/// Runs `body` from its start each time the last run has returned. enter() comes back when body leaves or returns.
/// AddressSanitizer is told of every change of stack.
class fiber {
 public:
  explicit fiber(void (*body)());
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  void enter();
  /// From inside: back to who entered.
  void leave();

 private:
  static void start(unsigned high, unsigned low);

  static constexpr std::size_t stack_bytes = 64 * 1024;
  void (*body_)();
  std::unique_ptr<unsigned char[]> stack_;
  ucontext_t own_{}, caller_{};
  void* own_place_[5]{};  // what __builtin_setjmp keeps
  void* caller_place_[5]{};
  bool started_ = false;
  void* own_fake_ = nullptr;     ///< AddressSanitizer's shadow of our locals while we are away
  void* caller_fake_ = nullptr;  ///< and of the caller's
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace aft::emulator
