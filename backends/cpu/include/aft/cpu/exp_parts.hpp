// SPDX-License-Identifier: Apache-2.0
/// @file exp_parts.hpp  exp for weights that are scaled at once, by a table where the target has one in a register.
#pragma once

#include "exp.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// What exp_steps adds: with AVX-512 and float it rounds to sixteenths, whose number then stands in the lowest four
/// bits, else to integers.
template <class C>
inline constexpr C step_zero = exp_constants<C>::magic;
#if defined(__AVX512F__)
template <>
inline constexpr float step_zero<float> = 0x1.8p19f;

namespace exp_detail {

/// 2^(i/16) e^f from a table of one register, |f| <= ln(2) / 32. The lowest four bits of `steps` are i.
inline vec<float> mantissa(const __m512& steps, const __m512& f) {
  alignas(64) static constexpr float table[16] = {0x1.000000p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                                  0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                                  0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                                  0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
  const __m512 q = _mm512_fmadd_ps(f, _mm512_set1_ps(0.166666667f), _mm512_set1_ps(0.5000098f));
  const __m512 p = _mm512_fmadd_ps(_mm512_mul_ps(f, f), q, f);
  const __m512 m = _mm512_permutexvar_ps(_mm512_castps_si512(steps), _mm512_load_ps(table));
  return vec<float>(_mm512_fmadd_ps(m, p, m));
}

}  // namespace exp_detail
#endif

/// As exp_split, in fewer instructions, for what goes straight into times_pow2 or raise: the exponent may have a
/// fraction, and only its floor counts, as these two take it anyway. With AVX-512 the mantissa is 2^(i/16) from a table
/// of one register times a polynomial of half the length: 10 instructions instead of 12, 7 instead of 9 of them on
/// the two multipliers. Error at most 1.2 ulp as well (tested).
template <class C>
inline split_exp<C> exp_parts(const vec<C>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    const __m512 magic = _mm512_set1_ps(step_zero<float>);
    const __m512 rounded = _mm512_fmadd_ps(x, _mm512_set1_ps(exp_constants<float>::log2e), magic);
    const __m512 i = _mm512_sub_ps(rounded, magic);
    // ln 2 rounded to nearest and the rest: fma needs no short first part.
    __m512 f = _mm512_fnmadd_ps(i, _mm512_set1_ps(0x1.62e430p-1f), x);
    f = _mm512_fnmadd_ps(i, _mm512_set1_ps(-0x1.05c610p-29f), f);
    return {exp_detail::mantissa(rounded, f), vec<C>(i)};
  }
#endif
  return exp_split<C>(x);
}

/// x / ln 2 rounded to what exp_weight puts into exponent and table, plus a constant: increasing in x, and positive for
/// every x in range.
template <class C>
inline vec<C> exp_steps(const vec<C>& x) {
  return mul_add(x, vec<C>(exp_constants<C>::log2e), vec<C>(step_zero<C>));
}

/// As exp_parts, where `steps` is exp_steps(x), for weights that are only compared with one another: with AVX-512 and
/// float the base is not e but e^(1 + 2^-28.4), as if every x were larger by a sixteenth of its last place. It saves
/// the second half of ln 2.
template <class C>
inline split_exp<C> exp_weight(const vec<C>& x, [[maybe_unused]] const vec<C>& steps) {
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    const __m512 i = _mm512_sub_ps(steps, _mm512_set1_ps(step_zero<float>));
    const __m512 f = _mm512_fnmadd_ps(i, _mm512_set1_ps(0x1.62e430p-1f), x);
    return {exp_detail::mantissa(steps, f), vec<C>(i)};
  }
#endif
  return exp_split<C>(x);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
