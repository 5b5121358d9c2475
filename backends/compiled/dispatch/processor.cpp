// SPDX-License-Identifier: Apache-2.0
#include "processor.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace aft::AFT_COMPILED_VERSION {

#if defined(__x86_64__)

namespace {

/// One bit of the processor's description. Only of what uses no registers beyond those that every system saves: for
/// vectors the compiler's own question is asked, which asks the system too.
enum class place { leaf_1_ecx, leaf_7_edx, extended_ecx };
bool has_bit(place where, unsigned bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const unsigned leaf = where == place::leaf_1_ecx ? 1u : where == place::leaf_7_edx ? 7u : 0x80000001u;
  if (__get_cpuid_count(leaf, 0, &a, &b, &c, &d) == 0) return false;
  return ((where == place::leaf_7_edx ? d : c) & bit) != 0;
}

}  // namespace

bool has_v2() {
  return __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
         __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && has_bit(place::leaf_1_ecx, 1u << 13) &&
         has_bit(place::extended_ecx, 1u << 0);  // CMPXCHG16B, LAHF
}

bool has_v3() {
  return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && has_bit(place::leaf_1_ecx, 1u << 29) &&  // F16C
         has_bit(place::leaf_1_ecx, 1u << 22) &&                                    // MOVBE
         has_bit(place::extended_ecx, 1u << 5);                                     // LZCNT
}

bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_v4_bf16() {
  return has_v4() && __builtin_cpu_supports("avx512bf16");
}

// A core of Emerald Rapids does a quarter as many of these instructions a cycle as multiply-adds of floats, a core of
// Zen 5 as many: `full` on bfloat16 data takes 1.8 times as long as v4 on the one, about half as long on the other
// (docs/adr/0010-bfloat16-products.md has the figures). AVX512-FP16 is what Intel's have and AMD's have not.
bool gains_by_v4_bf16() {
  return !has_bit(place::leaf_7_edx, 1u << 23);
}

bool has_neon() {
  return false;
}
bool has_neon_bf16() {
  return false;
}

#else

bool has_v2() {
  return false;
}
bool has_v3() {
  return false;
}
bool has_v4() {
  return false;
}
bool has_v4_bf16() {
  return false;
}
bool gains_by_v4_bf16() {
  return false;
}

#if defined(__aarch64__)
bool has_neon() {
  return true;
}
bool has_neon_bf16() {
#if defined(__linux__)
  constexpr unsigned long bf16 = 1ul << 14;  // HWCAP2_BF16, which older headers do not name
  return (getauxval(AT_HWCAP2) & bf16) != 0;
#else
  return false;
#endif
}
#else
bool has_neon() {
  return false;
}
bool has_neon_bf16() {
  return false;
}
#endif

#endif

}  // namespace aft::AFT_COMPILED_VERSION
