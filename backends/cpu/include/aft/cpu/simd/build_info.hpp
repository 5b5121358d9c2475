// SPDX-License-Identifier: Apache-2.0
/// @file simd/build_info.hpp  One line about how a file was compiled.
#pragma once

#include <aft/core/config.hpp>
#include <aft/core/version.hpp>

#include "vec.hpp"

// The words for each name that config.hpp may choose; one without words does not compile.
#define AFT_WORDS_isa_avx512_fp16 "AVX-512 with FP16 and BF16"
#define AFT_WORDS_isa_avx512_bf16 "AVX-512 with BF16"
#define AFT_WORDS_isa_avx512 "AVX-512"
#define AFT_WORDS_isa_avx2_fma "AVX2 with FMA"
#define AFT_WORDS_isa_avx2_fma_no_f16c "AVX2 with FMA, without F16C"
#define AFT_WORDS_isa_avx2 "AVX2 without FMA"
#define AFT_WORDS_isa_avx "AVX"
#define AFT_WORDS_isa_sse4_2 "SSE4.2"
#define AFT_WORDS_isa_sse2 "SSE2"
#define AFT_WORDS_isa_neon "NEON"
#define AFT_WORDS_isa_generic "no instruction set that aft knows"
#define AFT_WORDS_OF(isa) AFT_WORDS_JOIN(AFT_WORDS_, isa)
#define AFT_WORDS_JOIN(a, b) a##b
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
      ", " AFT_WORDS_OF(AFT_HOST_ISA)
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

#undef AFT_WORDS_isa_avx512_fp16
#undef AFT_WORDS_isa_avx512_bf16
#undef AFT_WORDS_isa_avx512
#undef AFT_WORDS_isa_avx2_fma
#undef AFT_WORDS_isa_avx2_fma_no_f16c
#undef AFT_WORDS_isa_avx2
#undef AFT_WORDS_isa_avx
#undef AFT_WORDS_isa_sse4_2
#undef AFT_WORDS_isa_sse2
#undef AFT_WORDS_isa_neon
#undef AFT_WORDS_isa_generic
#undef AFT_WORDS_OF
#undef AFT_WORDS_JOIN
#undef AFT_NUMBER
#undef AFT_NUMBER_AS_IT_IS
#undef AFT_VERSION_WORDS
