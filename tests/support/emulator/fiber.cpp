// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <cstdint>
#include <cstring>

// This file is compiled without AddressSanitizer, which cannot follow it; the build says where kernels are watched by
// it.
#if defined(AFT_ASAN_FIBERS)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// swapcontext asks the system for the signal mask each time, and a jump leaves the processor's guesses of return
// addresses one off, so that every return after it stalls. Here all that a call has to keep is kept, and the return
// goes to where the guess says, since fibers stop at the same calls. No function of the compiler's, which would look
// for the registers that it leaves alone.
asm(R"(
  .text
  .globl aft_emulator_change_stack
  .type aft_emulator_change_stack, @function
aft_emulator_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size aft_emulator_change_stack, . - aft_emulator_change_stack
)");
#endif

namespace aft::emulator {

fiber::fiber(void (*body)()) : own_(new unsigned char[stack_bytes]) {
  auto* begin = body;
#if defined(AFT_ASAN_FIBERS)
  body_ = body;
  stack_ = own_.get();
  bytes_ = stack_bytes;
  begin = &fiber::start;
#endif
#if defined(__x86_64__)
  // As if `begin` had been about to be called: six registers, where to return to, and behind it the caller, nobody.
  std::uintptr_t frame[8]{};
  frame[6] = reinterpret_cast<std::uintptr_t>(begin);
  static_assert(stack_bytes % 16 == 0 && sizeof frame % 16 == 0);  // as calls have it
  top_ = own_.get() + stack_bytes - sizeof frame;
  std::memcpy(top_, frame, sizeof frame);
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = own_.get();
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, begin, 0);
#endif
}

#if defined(AFT_ASAN_FIBERS)
/// Who is being entered, for a start that can take no arguments.
thread_local fiber* fiber::entered = nullptr;

void fiber::start() {
  fiber& self = *entered;
  self.arrive();
  self.body_();
}

void fiber::leave_for(fiber& to) {
  to.before_ = this;
  entered = &to;
  __sanitizer_start_switch_fiber(&fake_, to.stack_, to.bytes_);
}

void fiber::arrive() {
  __sanitizer_finish_switch_fiber(fake_, &before_->stack_, &before_->bytes_);
}
#endif

}  // namespace aft::emulator
