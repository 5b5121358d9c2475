// SPDX-License-Identifier: Apache-2.0
/// @file math/exp_table.hpp  exp for weights that are scaled at once, by a table where the target has one in a
/// register.
#pragma once

#include "exp.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// As exp_split, in fewer instructions, for what goes straight into times_pow2 or raise: the exponent may have a
/// fraction, and only its floor counts, as these two take it anyway. With AVX-512 the mantissa is 2^(i/16) from a table
/// of one register times a polynomial of half the length: 10 instructions instead of 12, 7 instead of 9 of them on
/// the two multipliers. Error at most 1.2 ulp as well (tested).
template <class C>
inline split_exp<C> exp_parts(const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    alignas(64) static constexpr float table[16] = {0x1.000000p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                                    0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                                    0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                                    0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
    // Rounds to sixteenths, whose number then stands in the lowest four bits.
    const __m512 magic = _mm512_set1_ps(0x1.8p19f);
    const __m512 rounded = _mm512_fmadd_ps(x, _mm512_set1_ps(exp_constants<float>::log2e), magic);
    const __m512 i = _mm512_sub_ps(rounded, magic);
    // ln 2 rounded to nearest and the rest: fma needs no short first part.
    __m512 f = _mm512_fnmadd_ps(i, _mm512_set1_ps(0x1.62e430p-1f), x);
    f = _mm512_fnmadd_ps(i, _mm512_set1_ps(-0x1.05c610p-29f), f);
    const __m512 q = _mm512_fmadd_ps(f, _mm512_set1_ps(0.166666667f), _mm512_set1_ps(0.5000098f));
    const __m512 p = _mm512_fmadd_ps(_mm512_mul_ps(f, f), q, f);
    const __m512 m = _mm512_permutexvar_ps(_mm512_castps_si512(rounded), _mm512_load_ps(table));
    return {vec<C>(_mm512_fmadd_ps(m, p, m)), vec<C>(i)};
  }
#endif
  return exp_split<C>(x);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
