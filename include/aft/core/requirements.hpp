// SPDX-License-Identifier: Apache-2.0
/// @file requirements.hpp  What a file must be compiled with; where it is not, one error says so and nothing follows.
#pragma once

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(__ASSOCIATIVE_MATH__)
// Exactness rests on NaN, infinities and on the order of floating-point operations; all three are licensed away by it.
#error "aft does not work under -ffast-math, nor under parts of it that drop NaN or reorder sums"
#define AFT_REFUSED
#endif

#if defined(__FLT_EVAL_METHOD__) && \
    (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2 || (__FLT_EVAL_METHOD__ < 0 && !defined(__clang__)))
// x87 keeps more digits than a type has until a number is stored. What splits a number by adding and subtracting then
// splits nothing, and gradients were off by a factor of two. (16 is said of _Float16 alone; clang says -1 under some
// of the flags that aft.hpp takes back.)
#error "aft needs float arithmetic in float, not in wider registers: compile for SSE2 (-msse2 -mfpmath=sse)"
#define AFT_REFUSED
#endif

// Not in the device pass of a CUDA compiler, whose code never throws.
#if !defined(__cpp_exceptions) && !defined(__CUDA_ARCH__)
#error "aft reports wrong arguments by exceptions: compile this file without -fno-exceptions"
#define AFT_REFUSED
#endif

#if __cplusplus < 202002L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#error "aft needs C++20 (-std=c++20)"
#define AFT_REFUSED
#endif

// A file that does not exist ends the compilation, where #error would be followed by hundreds of errors.
#if defined(AFT_REFUSED)
#include "nothing of aft is compiled, see the error above"
#endif
