// SPDX-License-Identifier: Apache-2.0
// Must compile: no flag of fast mathematics is set, and the check of backends/cpu may not believe that one is.
#include <immintrin.h>

#include <aft/cpu/simd/exact_arithmetic.hpp>

void ask() {
  aft::cpu_impl::refuse_fast_math<float>();
  aft::cpu_impl::refuse_fast_math<double>();
}
