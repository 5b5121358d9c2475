// SPDX-License-Identifier: Apache-2.0
/// @file query_columns.hpp  Packs P[t] = [exp(-lse) g | exp(-lse) g o], the columns of the transposed fold.
#pragma once

#include <limits>

#include "key_columns.hpp"
#include "upstream.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// cs.exponent holds what exp(-lse) was divided by, cs.unscale undoes the power of two that g was multiplied by.
/// Lanes with logits beyond exp_constants::range are packed as NaN, which sends their keys to the exact sums.
template <class C>
inline void pack_queries(const gradient_inputs& in, const lane_tile<C>& tile, C* P, column_scale<C>& cs) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const backward_problem& p = *in.p;
  upstream<C, column_chunk> up;
  const vec<C> zero(C(0));
  vec<C> top(-inf), high(C(0)), beyond(C(0));
  for (index_t t0 = 0; t0 < p.Tq; t0 += column_chunk) {
    const index_t t1 = t0 + column_chunk < p.Tq ? t0 + column_chunk : p.Tq;
    up.read(in, tile, t0, t1);
    for (index_t i = 0; i < (t1 - t0) * L; i += L) {
      const auto seen = load(up.inverse + i) != zero;
      const vec<C> scale = -load(up.exponent + i);
      const vec<C> size = xsimd::abs(load(up.g + i));
      top = xsimd::select(seen && (scale > top), scale, top);
      high = xsimd::select((size > high) && (size < vec<C>(inf)), size, high);
      beyond = xsimd::select(load(up.base_hi + i) != zero, vec<C>(C(1)), beyond);
    }
  }
  C highs[L], scales[L];
  store(highs, high);
  for (index_t l = 0; l < L; ++l) value_scale(highs[l], scales[l], cs.unscale[l]);
  const vec<C> exponent = xsimd::select(top > vec<C>(-inf), top, zero);
  store(cs.exponent, exponent);
  store(cs.base, zero);
  store(cs.floor, zero);
  const auto taint = beyond > zero;
  const vec<C> nan(std::numeric_limits<C>::quiet_NaN());
  const vec<C> by = load(scales);
  for (index_t t0 = 0; t0 < p.Tq; t0 += column_chunk) {
    const index_t t1 = t0 + column_chunk < p.Tq ? t0 + column_chunk : p.Tq;
    up.read(in, tile, t0, t1);
    for (index_t i = 0; i < (t1 - t0) * L; i += L, P += tuning<C>::columns) {
      const vec<C> inverse = load(up.inverse + i);
      const vec<C> weight = inverse * pow2<C>(-load(up.exponent + i) - exponent);
      const vec<C> g = weight * (load(up.g + i) * by);
      const auto empty = inverse == zero;
      store(P, xsimd::select(taint, nan, xsimd::select(empty, zero, g)));
      store(P + L, xsimd::select(taint, nan, xsimd::select(empty, zero, g * load(up.o + i))));
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
