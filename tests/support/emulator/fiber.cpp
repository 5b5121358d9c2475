// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <cstdint>

// This file is compiled without AddressSanitizer, which cannot follow it; the build says where kernels are watched by
// it.
#if defined(AFT_ASAN_FIBERS)
#include <sanitizer/common_interface_defs.h>
#endif

namespace aft::emulator {

namespace {

[[maybe_unused]] void start_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
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

fiber::fiber(void (*body)()) : body_(body), stack_(new unsigned char[stack_bytes]) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = stack_bytes;
  own_.uc_link = nullptr;
  // makecontext hands over ints only: the address travels in two.
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&own_, reinterpret_cast<void (*)()>(&fiber::start), 2, static_cast<unsigned>(address >> 32),
              static_cast<unsigned>(address));
}

void fiber::start(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<fiber*>((static_cast<std::uintptr_t>(high) << 32) | low);
  finish_switch(self->own_fake_, &self->caller_stack_, &self->caller_bytes_);
  while (true) {
    self->body_();
    self->leave();
  }
}

// A context switch asks the kernel for the signal mask each time, and under AddressSanitizer it clears the shadow of a
// whole stack; together most of the tests' time. Once a fiber has begun, jumps do without either.
namespace {
[[noreturn, gnu::noinline]] void jump(void** place) {
  __builtin_longjmp(place, 1);
}
}  // namespace

void fiber::enter() {
  start_switch(&caller_fake_, stack_.get(), stack_bytes);
  if (__builtin_setjmp(caller_place_) == 0) {
    if (started_) jump(own_place_);
    started_ = true;
    swapcontext(&caller_, &own_);
  }
  finish_switch(caller_fake_, nullptr, nullptr);
}

void fiber::leave() {
  start_switch(&own_fake_, caller_stack_, caller_bytes_);
  if (__builtin_setjmp(own_place_) == 0) jump(caller_place_);
  finish_switch(own_fake_, &caller_stack_, &caller_bytes_);
}

}  // namespace aft::emulator
