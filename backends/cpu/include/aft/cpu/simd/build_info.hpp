// SPDX-License-Identifier: Apache-2.0
/// @file simd/build_info.hpp  One line about how a file was compiled.
#pragma once

#include <aft/core/config.hpp>
#include <aft/core/version.hpp>

#include "vec.hpp"

// In words that a user would look for; the name of the namespace (core/instruction_set.hpp) has all of it.
#if defined(AFT_EMULATED_SIMD)
#define AFT_WORDS_OF_ISA "vectors of plain numbers"
#elif defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#if defined(__AVX512BF16__) && defined(__AVX512FP16__)
#define AFT_WORDS_OF_ISA "AVX-512 with FP16 and BF16"
#elif defined(__AVX512BF16__)
#define AFT_WORDS_OF_ISA "AVX-512 with BF16"
#else
#define AFT_WORDS_OF_ISA "AVX-512"
#endif
#elif defined(__AVX512F__)
#define AFT_WORDS_OF_ISA "AVX-512F without all of BW, DQ and VL"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define AFT_WORDS_OF_ISA "AVX2 with FMA"
#elif defined(__AVX2__) && defined(__FMA__)
#define AFT_WORDS_OF_ISA "AVX2 with FMA, without F16C"
#elif defined(__AVX2__)
#define AFT_WORDS_OF_ISA "AVX2 without FMA"
#elif defined(__AVX__) && defined(__FMA__)
#define AFT_WORDS_OF_ISA "AVX with FMA"
#elif defined(__AVX__)
#define AFT_WORDS_OF_ISA "AVX"
#elif defined(__SSE4_2__)
#define AFT_WORDS_OF_ISA "SSE4.2"
#elif defined(__SSE4_1__)
#define AFT_WORDS_OF_ISA "SSE4.1"
#elif defined(__SSSE3__)
#define AFT_WORDS_OF_ISA "SSSE3"
#elif defined(__SSE3__)
#define AFT_WORDS_OF_ISA "SSE3"
#elif defined(__SSE2__)
#define AFT_WORDS_OF_ISA "SSE2"
#elif defined(__ARM_FEATURE_SVE) && defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS > 0
#define AFT_WORDS_OF_ISA "SVE of " AFT_NUMBER(__ARM_FEATURE_SVE_BITS) " bits"
#elif defined(__ARM_NEON)
#define AFT_WORDS_OF_ISA "NEON"
#elif defined(__VSX__)
#define AFT_WORDS_OF_ISA "VSX"
#elif defined(__s390x__) && defined(__VEC__)
#define AFT_WORDS_OF_ISA "VXE"
#elif defined(__riscv_v_fixed_vlen)
#define AFT_WORDS_OF_ISA "RVV of " AFT_NUMBER(__riscv_v_fixed_vlen) " bits"
#elif defined(__wasm_simd128__)
#define AFT_WORDS_OF_ISA "SIMD of WebAssembly"
#else
#define AFT_WORDS_OF_ISA "no instruction set that aft knows"
#endif
#define AFT_NUMBER(x) AFT_NUMBER_AS_IT_IS(x)
#define AFT_NUMBER_AS_IT_IS(x) #x
#define AFT_VERSION_WORDS(a, b, c) AFT_NUMBER(a) "." AFT_NUMBER(b) "." AFT_NUMBER(c)

namespace aft {

/// How the file that calls this was compiled, in one line without a newline, as in
///
///     aft 0.1.0, AVX2 with FMA, OpenMP, optimised, GCC 12.2.0, xsimd 8.1.0
///
/// A program that logs it once shows what is otherwise only slow: "SSE2" where -march was forgotten, "no OpenMP (one
/// thread)", "not optimised". It tells the flags of this file; how many threads a call takes is decided when it runs.
/// The text has static storage and stands in the program as it is returned: no cost, no errors. The parts and their
/// order may change between versions.
///
/// Of internal linkage: files of one program may differ in -O and -fopenmp, and a shared function would tell all of
/// them about one.
[[maybe_unused]] static const char* build_info() noexcept {
  return "aft " AFT_VERSION_WORDS(AFT_VERSION_MAJOR, AFT_VERSION_MINOR, AFT_VERSION_PATCH)  //
      ", " AFT_WORDS_OF_ISA
#if defined(AFT_COMPILED_LEVEL)
      " of the compiled library"
#endif
#if defined(_OPENMP)
      ", OpenMP"
#else
      ", no OpenMP (one thread)"
#endif
#if defined(__OPTIMIZE__)
      ", optimised"
#else
      ", not optimised"
#endif
#if defined(__clang__)
      ", " __VERSION__
#elif defined(__GNUC__)
      ", GCC " __VERSION__
#endif
      ", xsimd " AFT_VERSION_WORDS(XSIMD_VERSION_MAJOR, XSIMD_VERSION_MINOR, XSIMD_VERSION_PATCH);
}

}  // namespace aft

#undef AFT_WORDS_OF_ISA
#undef AFT_NUMBER
#undef AFT_NUMBER_AS_IT_IS
#undef AFT_VERSION_WORDS
