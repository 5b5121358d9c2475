// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define AFT_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AFT_ASAN_FIBERS 1
#endif
#endif
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

#if defined(AFT_ASAN_FIBERS)

void fiber::enter() {
  start_switch(&caller_fake_, stack_.get(), stack_bytes);
  swapcontext(&caller_, &own_);
  finish_switch(caller_fake_, nullptr, nullptr);
}

void fiber::leave() {
  start_switch(&own_fake_, caller_stack_, caller_bytes_);
  swapcontext(&own_, &caller_);
  finish_switch(own_fake_, &caller_stack_, &caller_bytes_);
}

#else

// swapcontext asks the kernel for the signal mask each time, which took a third of the tests' time. Once a fiber has
// begun, jumps do without.
void fiber::enter() {
  if (_setjmp(caller_place_) != 0) return;
  if (started_) _longjmp(own_place_, 1);
  started_ = true;
  swapcontext(&caller_, &own_);
}

void fiber::leave() {
  if (_setjmp(own_place_) == 0) _longjmp(caller_place_, 1);
}

#endif

}  // namespace aft::emulator
