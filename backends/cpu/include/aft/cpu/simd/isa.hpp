// SPDX-License-Identifier: Apache-2.0
/// @file simd/isa.hpp  The name of the level that a file was compiled for.
#pragma once

#include <aft/core/config.hpp>

#include <string>
#include <vector>

namespace aft {

/// The level whose kernels run, in the words of AFT_ISA: v2, v3, v4, v4-bf16 on x86-64 (v1 is plain x86-64), neon or
/// neon-bf16 on aarch64, generic elsewhere. Of the levels that the file's -m flags hold as a whole it is the highest;
/// aft::build_info() tells more. With aft::compiled it is the level that the library has picked for this processor.
///
/// Static storage, no errors. Of internal linkage, since files of one program may differ in their flags.
[[maybe_unused]] static const char* isa() noexcept {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX512BF16__)
  return "v4-bf16";
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
  return "v4";
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  return "v3";
#elif defined(__SSE4_2__)
  return "v2";
#elif defined(__x86_64__) || defined(__i386__)
  return "v1";
#elif defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return "neon-bf16";
#elif defined(__aarch64__)
  return "neon";
#else
  return "generic";
#endif
}

/// Names of the levels that this program could run here, from the least on: the one that it was compiled for. With
/// aft::compiled those that the library holds and the processor has, whichever of them the variable AFT_ISA allows.
[[maybe_unused]] static std::vector<std::string> isas() {
  return {isa()};
}

}  // namespace aft
