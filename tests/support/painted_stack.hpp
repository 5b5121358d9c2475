// SPDX-License-Identifier: Apache-2.0
/// @file painted_stack.hpp  How deep a call reaches into the stacks of the thread that makes it and of its team.
#pragma once

#include <pthread.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

namespace aft::test {

/// The most that a call may need. Without optimisation every temporary has a place of its own.
#if defined(__OPTIMIZE__)
inline constexpr std::size_t stack_limit = std::size_t{64} << 10;
#else
inline constexpr std::size_t stack_limit = std::size_t{512} << 10;
#endif

/// Bytes from where a stack was when the call began, or for workers from the top of theirs, to the deepest that was
/// written. A worker's count what the thread library and OpenMP's own keep there, as their stacks have to hold it too.
struct stack_use {
  std::size_t caller = 0, worker = 0;
};

namespace stack_detail {

inline constexpr unsigned char paint = 0xa5;
// What lies right below the painting function is in use.
inline constexpr std::size_t spared = 512;

[[gnu::noinline]] inline void cover(unsigned char* low, std::size_t size) {
  // No call of memset, whose frame would lie there. Through a volatile pointer, as no one seems to read it.
  for (volatile unsigned char* p = low; p != low + size; ++p) *p = paint;
}

inline std::size_t depth_below(const unsigned char* top, const unsigned char* low) {
  const volatile unsigned char* p = low;
  while (p != top && *p == paint) ++p;
  return static_cast<std::size_t>(top - const_cast<const unsigned char*>(p));
}

/// A worker's stack as far as it is looked at: what a limit of eight megabytes leaves would take longer than the call.
struct part_of_stack {
  unsigned char *low = nullptr, *top = nullptr;

  static part_of_stack of_this_thread() {
    pthread_attr_t attr;
    void* low = nullptr;
    std::size_t size = 0, guard = 0;
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_getguardsize(&attr, &guard);
    pthread_attr_destroy(&attr);
    auto* const top = static_cast<unsigned char*>(low) + size;
    return {top - std::min(size - guard, 2 * stack_limit), top};
  }
};

#if defined(_OPENMP)
[[gnu::noinline]] inline part_of_stack paint_worker() {
  const part_of_stack part = part_of_stack::of_this_thread();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - spared;
  cover(part.low, here - reinterpret_cast<std::uintptr_t>(part.low));
  return part;
}
#endif

struct measured_call {
  const std::function<void()>* call;
  unsigned char* low;
  stack_use use;
};

[[gnu::noinline]] inline void* run_measured(void* given) {
  auto& m = *static_cast<measured_call*>(given);
#if defined(_OPENMP)
  // The team of two that the call will find: OpenMP keeps it from one region to the next.
  part_of_stack worker;
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) worker = paint_worker();
#endif
  auto* const here = static_cast<unsigned char*>(__builtin_frame_address(0));
  cover(m.low, static_cast<std::size_t>(here - m.low) - 2 * spared);
  (*m.call)();
  m.use.caller = depth_below(here, m.low);
#if defined(_OPENMP)
  if (worker.top != nullptr) m.use.worker = depth_below(worker.top, worker.low);
#endif
  return nullptr;
}

}  // namespace stack_detail

/// Makes the call on a thread of its own with a stack much larger than the limit.
inline stack_use measure_stack(const std::function<void()>& call) {
  // pthread_attr_setstack asks for pages; those that nobody wrote are cheap.
  static std::vector<unsigned char> memory(8 * stack_limit + 4096);
  auto* const low = memory.data() + 4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
  stack_detail::measured_call m{&call, low, {}};
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  const bool failed = pthread_attr_setstack(&attr, low, 8 * stack_limit) != 0 ||
                      pthread_create(&thread, &attr, stack_detail::run_measured, &m) != 0;
  pthread_attr_destroy(&attr);
  if (failed) throw std::runtime_error("no thread on a given stack");
  pthread_join(thread, nullptr);
  return m.use;
}

}  // namespace aft::test
