// SPDX-License-Identifier: Apache-2.0
/// @file float_environment.hpp  The control word of floating-point arithmetic, the library's own while it computes.
#pragma once

#include "config.hpp"

// Without SSE2's arithmetic an x86 processor has two units and a control word in each.
#if !defined(__SSE2_MATH__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace aft {
inline namespace AFT_ISA {

/// While one lives, its thread rounds to nearest, flushes nothing to zero and traps nothing; then it gets back what it
/// had, flags included. Programs flush subnormal numbers for speed, and round or trap for their own checks: with that
/// in force on some threads and not on others, results would depend on which thread computed them.
///
/// A compiler may move arithmetic across a change of the control word, which it does not look through. So what computes
/// is called, as a function that is not inlined.
///
/// Cost: one read of the control word, a second at the end, and a write only where something is to be changed.
class float_environment {
 public:
  float_environment(const float_environment&) = delete;
  float_environment& operator=(const float_environment&) = delete;

#if defined(__SSE2_MATH__)
  [[gnu::always_inline]] float_environment() : before_(__builtin_ia32_stmxcsr()) {
    // The six flags may stand as they are: what is masked never traps, and they are put back.
    if ((before_ & ~flags) != all_masked) __builtin_ia32_ldmxcsr(all_masked);
  }
  [[gnu::always_inline]] ~float_environment() {
    if (__builtin_ia32_stmxcsr() != before_) __builtin_ia32_ldmxcsr(before_);
  }

 private:
  static constexpr unsigned flags = 0x3f, all_masked = 0x1f80;
  unsigned before_;
#elif defined(__aarch64__)
  [[gnu::always_inline]] float_environment() {
    asm volatile("mrs %0, fpcr" : "=r"(control_));
    asm volatile("mrs %0, fpsr" : "=r"(status_));
    if (control_ != 0) asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}) : "memory");
  }
  [[gnu::always_inline]] ~float_environment() {
    if (control_ != 0) asm volatile("msr fpcr, %0" : : "r"(control_) : "memory");
    std::uint64_t now = 0;
    asm volatile("mrs %0, fpsr" : "=r"(now) : : "memory");
    if (now != status_) asm volatile("msr fpsr, %0" : : "r"(status_) : "memory");
  }

 private:
  std::uint64_t control_ = 0, status_ = 0;
#else
  float_environment() {
    // Not feholdexcept, which leaves it to the caller whether subnormal numbers are zero.
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~float_environment() {
    std::fesetenv(&before_);
  }

 private:
  std::fenv_t before_;
#endif
};

}  // namespace AFT_ISA
}  // namespace aft
