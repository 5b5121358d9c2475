// SPDX-License-Identifier: Apache-2.0
/// @file level.hpp  The kernels, compiled for the level that AFT_COMPILED_LEVEL names; included by one file a type.
#pragma once

#include <aft/aft.hpp>

#include <cstddef>
#include <utility>

#include "kernels.hpp"

// The build system appends a level's flags to those that it was given, and some of these would stay in force: a level
// that holds more than its name says ends its program on the processors that it is there for.
#define AFT_IS_v2 1
#define AFT_IS_v3 2
#define AFT_IS_v4 3
#define AFT_IS_v4_bf16 4
#define AFT_IS_neon 5
#define AFT_IS_neon_bf16 6
#define AFT_IS_(level) AFT_IS_##level
#define AFT_IS(level) AFT_IS_(level)
#define AFT_THIS AFT_IS(AFT_COMPILED_LEVEL)
#if AFT_THIS <= AFT_IS_v4_bf16
#if !defined(__SSE4_2__) || (AFT_THIS == AFT_IS_v2) == defined(__AVX__) ||        \
    (AFT_THIS >= AFT_IS_v3) != (defined(__AVX2__) && defined(__FMA__)) ||         \
    (AFT_THIS >= AFT_IS_v4) != (defined(__AVX512F__) && defined(__AVX512BW__)) || \
    (AFT_THIS >= AFT_IS_v4_bf16) != defined(__AVX512BF16__) || defined(__AVX512FP16__)
#error "aft::compiled: this level is compiled with other -m flags than its own: take them out of CMAKE_CXX_FLAGS"
#endif
#elif (AFT_THIS == AFT_IS_neon_bf16) != defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) || defined(__ARM_FEATURE_SVE)
#error "aft::compiled: this level is compiled with other -m flags than its own: take them out of CMAKE_CXX_FLAGS"
#endif

namespace aft::inline AFT_ISA {

// In the level's own namespace: one definition in the version's would be every level's, with the kernels of one of
// them.
template <class C, std::size_t... Family>
constexpr AFT_COMPILED_VERSION::kernels kernels_of(std::index_sequence<Family...>) {
  return {{&cpu_forward<C, static_cast<family>(Family)>...},
          {&cpu_backward<C, static_cast<family>(Family)>...},
          &build_info};
}
template <class C>
constexpr AFT_COMPILED_VERSION::kernels kernels_of_this_level() {
  return kernels_of<C>(std::make_index_sequence<families>());
}

}  // namespace aft::inline AFT_ISA
