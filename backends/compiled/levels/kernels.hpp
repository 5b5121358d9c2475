// SPDX-License-Identifier: Apache-2.0
/// @file kernels.hpp  What a level of the compiled library hands to the dispatcher.
#pragma once

#include <aft/core/problem/dispatch.hpp>

#include <array>

// One definition of it serves every level, so it stands outside of the namespaces that their flags name; in that of the
// version, since two versions may meet in one program.
namespace aft::AFT_COMPILED_VERSION {

/// The kernels of one level for one arithmetic type, by the family that asks.
struct kernels {
  std::array<void (*)(const problem&, const cpu&), families> forward;
  std::array<void (*)(const backward_problem&, const cpu&), families> backward;
  const char* (*build_info)() noexcept;  ///< how they were compiled
};

// The levels that there can be; the library holds those that its build chose.
#define AFT_LEVEL_TABLES(level) extern const kernels level##_f32, level##_f64;
AFT_LEVEL_TABLES(v2)
AFT_LEVEL_TABLES(v3)
AFT_LEVEL_TABLES(v4)
AFT_LEVEL_TABLES(v4_bf16)
AFT_LEVEL_TABLES(neon)
AFT_LEVEL_TABLES(neon_bf16)
#undef AFT_LEVEL_TABLES

}  // namespace aft::AFT_COMPILED_VERSION
