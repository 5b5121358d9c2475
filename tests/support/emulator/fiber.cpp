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
extern "C" void aft_emulator_change_stack(void** save, void* to);
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

namespace {

/// Who is being entered, for a start that can take no arguments.
thread_local fiber* entered = nullptr;

void start_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] std::size_t bytes) {
#if defined(AFT_ASAN_FIBERS)
  __sanitizer_start_switch_fiber(save, stack, bytes);
#endif
}

void finish_switch([[maybe_unused]] void* fake, [[maybe_unused]] const void** from,
                   [[maybe_unused]] std::size_t* bytes) {
#if defined(AFT_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(fake, from, bytes);
#endif
}

}  // namespace

fiber::fiber(void (*body)())
    : body_(body), own_(new unsigned char[stack_bytes]), stack_(own_.get()), bytes_(stack_bytes) {
#if defined(__x86_64__)
  // As if start() had been about to be called: six registers, where to return to, and behind it the caller, nobody.
  auto top = reinterpret_cast<std::uintptr_t>(own_.get() + stack_bytes) / 16 * 16;
  void* frame[8] = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, reinterpret_cast<void*>(&fiber::start),
                    nullptr};
  top -= sizeof frame;
  std::memcpy(reinterpret_cast<void*>(top), frame, sizeof frame);
  top_ = reinterpret_cast<void*>(top);
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = own_.get();
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &fiber::start, 0);
#endif
}

void fiber::start() {
  fiber& self = *entered;
  self.arrive();
  self.body_();
}

void fiber::arrive() {
  finish_switch(fake_, &before_->stack_, &before_->bytes_);
}

void fiber::change(fiber& from, fiber& to) {
  to.before_ = &from;
  entered = &to;
  start_switch(&from.fake_, to.stack_, to.bytes_);
#if defined(__x86_64__)
  aft_emulator_change_stack(&from.top_, to.top_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
  from.arrive();
}

}  // namespace aft::emulator
