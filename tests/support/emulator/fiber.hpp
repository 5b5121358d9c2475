// SPDX-License-Identifier: Apache-2.0
/// @file fiber.hpp  A function with a stack of its own that can be left half-way and entered again.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__x86_64__)
extern "C" void aft_emulator_change_stack(void** save, void* to);
#endif

namespace aft::emulator {

/// Each place of execution is one: those with a body and a stack of their own, and the thread that they began on.
/// AddressSanitizer is told of every change of stack.
class fiber {
 public:
  /// The stack that the caller runs on.
  fiber() = default;
  /// `body` never returns.
  explicit fiber(void (*body)());
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Goes on in `to`; comes back when somebody goes on in `from`, which is where the caller runs.
  static void change(fiber& from, fiber& to) {
    from.leave_for(to);
#if defined(__x86_64__)
    aft_emulator_change_stack(&from.top_, to.top_);
#else
    swapcontext(&from.context_, &to.context_);
#endif
    from.arrive();
  }

 private:
#if defined(AFT_ASAN_FIBERS)
  static void start();
  void leave_for(fiber& to);
  void arrive();
#else
  void leave_for(fiber&) {}
  void arrive() {}
#endif

  // Not a multiple of what caches map to one set: the same variable of many fibers is what is used in turn.
  static constexpr std::size_t stack_bytes = 64 * 1024 + 17 * 64;
  std::unique_ptr<unsigned char[]> own_;
#if defined(__x86_64__)
  void* top_ = nullptr;  ///< of the stack, while we are away
#else
  ucontext_t context_{};
#endif
#if defined(AFT_ASAN_FIBERS)
  static thread_local fiber* entered;
  void (*body_)() = nullptr;
  fiber* before_ = nullptr;  ///< who ran until we did
  void* fake_ = nullptr;     ///< AddressSanitizer's shadow of our locals while we are away
  const void* stack_ = nullptr;
  std::size_t bytes_ = 0;
#endif
};

}  // namespace aft::emulator
