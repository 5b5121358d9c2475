// SPDX-License-Identifier: Apache-2.0
/// @file compiled/backend.hpp  The CPU backend of a file that links aft::compiled: calls into the library.
#pragma once

#include <aft/core/problem/dispatch.hpp>

#include <string>
#include <vector>

namespace aft::AFT_COMPILED_ENTRIES {

// What the library exports to C++. The namespace is the version's: `problem` and `cpu` may change with it, and a
// library that knows them differently is then not found by the linker.
#define AFT_OF_LIBRARY [[gnu::visibility("default")]]
AFT_OF_LIBRARY void compiled_forward_f32(family asked, const problem& p, const cpu& exec);
AFT_OF_LIBRARY void compiled_forward_f64(family asked, const problem& p, const cpu& exec);
AFT_OF_LIBRARY void compiled_backward_f32(family asked, const backward_problem& p, const cpu& exec);
AFT_OF_LIBRARY void compiled_backward_f64(family asked, const backward_problem& p, const cpu& exec);
/// Names of static storage; the list ends with null.
AFT_OF_LIBRARY const char* compiled_isa() noexcept;
AFT_OF_LIBRARY const char* const* compiled_isas() noexcept;
AFT_OF_LIBRARY const char* compiled_build_info() noexcept;
#undef AFT_OF_LIBRARY

}  // namespace aft::AFT_COMPILED_ENTRIES

namespace aft {
inline namespace AFT_ISA {

template <>
struct cpu_backend<float> {
  static constexpr bool included = true;
};
template <>
struct cpu_backend<double> {
  static constexpr bool included = true;
};

template <class C>
stream_engine find_stream_engine() {
  return nullptr;
}

template <class C, family F>
void cpu_forward(const problem& p, const cpu& exec) {
  if constexpr (std::is_same_v<C, float>) {
    AFT_COMPILED_ENTRIES::compiled_forward_f32(F, p, exec);
  } else {
    AFT_COMPILED_ENTRIES::compiled_forward_f64(F, p, exec);
  }
}
template <class C, family F>
void cpu_backward(const backward_problem& p, const cpu& exec) {
  if constexpr (std::is_same_v<C, float>) {
    AFT_COMPILED_ENTRIES::compiled_backward_f32(F, p, exec);
  } else {
    AFT_COMPILED_ENTRIES::compiled_backward_f64(F, p, exec);
  }
}

}  // namespace AFT_ISA

// The three below are documented beside their namesakes of the header-only library, in simd/ of the CPU backend. Of
// internal linkage like those: a program may hold files of both kinds.

/// The level that the library has picked for this processor.
[[maybe_unused]] static const char* isa() noexcept {
  return AFT_COMPILED_ENTRIES::compiled_isa();
}

/// The levels that the library holds and this processor has, from the least on.
[[maybe_unused]] static std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const char* const* name = AFT_COMPILED_ENTRIES::compiled_isas(); *name != nullptr; ++name)
    names.emplace_back(*name);
  return names;
}

/// How the kernels that run were compiled.
[[maybe_unused]] static const char* build_info() noexcept {
  return AFT_COMPILED_ENTRIES::compiled_build_info();
}

}  // namespace aft
