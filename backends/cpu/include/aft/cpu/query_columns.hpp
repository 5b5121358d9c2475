// SPDX-License-Identifier: Apache-2.0
/// @file query_columns.hpp  Packs P[t] = [exp(-lse) g | exp(-lse) g o], the columns of the transposed fold.
#pragma once

#include <limits>

#include "key_columns.hpp"
#include "upstream.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// scales[i].exponent holds what exp(-lse) was divided by, unscale undoes the power of two that g was multiplied by,
/// unlift that of o: averages near the bottom of the range are lifted, else v A - B would cancel between subnormal
/// numbers. Lanes with logits beyond exp_constants::range are packed as NaN, which sends their keys to the exact sums.
/// `count` lane tiles at once, like pack_keys.
template <class C, class Tiles>
inline void pack_queries(const gradient_inputs& in, index_t count, const Tiles& tile_at, C* P, column_scale<C>* cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  constexpr C inf = std::numeric_limits<C>::infinity();
  struct query_range {
    C top[L], high[L], most[L], beyond[L], scale[L];
  };
  const backward_problem& p = *in.p;
  upstream<C, column_chunk> up;
  lane_tile<C> tiles[tuning<C>::group];
  query_range ranges[tuning<C>::group];
  const vec<C> zero(C(0)), one(C(1));
  for (index_t i = 0; i < count; ++i) {
    tiles[i] = tile_at(i);
    store(ranges[i].top, vec<C>(-inf));
    store(ranges[i].high, zero);
    store(ranges[i].most, zero);
    store(ranges[i].beyond, zero);
  }
  const auto end_of = [&](index_t t0) { return t0 + column_chunk < p.Tq ? t0 + column_chunk : p.Tq; };
  for (index_t t0 = 0; t0 < p.Tq; t0 += column_chunk) {
    for (index_t i = 0; i < count; ++i) {
      up.read(in, tiles[i], t0, end_of(t0));
      query_range& range = ranges[i];
      vec<C> top = load(range.top), high = load(range.high), most = load(range.most), beyond = load(range.beyond);
      for (index_t x = 0; x < (end_of(t0) - t0) * L; x += L) {
        const auto seen = differs<C>(load(up.inverse + x), zero);
        const vec<C> scale = -load(up.exponent + x);
        const vec<C> size = xsimd::abs(load(up.g + x));
        top = xsimd::select(seen && (scale > top), scale, top);
        high = xsimd::select((size > high) && (size < vec<C>(inf)), size, high);
        const vec<C> average = xsimd::abs(load(up.o + x));
        most = xsimd::select(seen && (average > most) && (average < vec<C>(inf)), average, most);
        beyond = xsimd::select(differs<C>(load(up.base_hi + x), zero), one, beyond);
      }
      store(range.top, top);
      store(range.high, high);
      store(range.most, most);
      store(range.beyond, beyond);
    }
  }
  for (index_t i = 0; i < count; ++i) {
    for (index_t l = 0; l < L; ++l) {
      value_scale(ranges[i].high[l], ranges[i].scale[l], cs[i].unscale[l]);
      value_scale(ranges[i].most[l] < C(1) ? ranges[i].most[l] : C(0), cs[i].lift[l], cs[i].unlift[l]);
    }
    const vec<C> top = load(ranges[i].top);
    store(cs[i].exponent, xsimd::select(top > vec<C>(-inf), top, zero));
    store(cs[i].base, zero);
    store(cs[i].floor, zero);
  }
  const vec<C> nan(std::numeric_limits<C>::quiet_NaN());
  for (index_t t0 = 0; t0 < p.Tq; t0 += column_chunk) {
    for (index_t i = 0; i < count; ++i) {
      up.read(in, tiles[i], t0, end_of(t0));
      const auto taint = load(ranges[i].beyond) > zero;
      const vec<C> by = load(ranges[i].scale), exponent = load(cs[i].exponent), lift = load(cs[i].lift);
      C* out = P + (i * p.Tq + t0) * N;
      for (index_t x = 0; x < (end_of(t0) - t0) * L; x += L, out += N) {
        const vec<C> inverse = load(up.inverse + x);
        const vec<C> weight = inverse * pow2<C>(-load(up.exponent + x) - exponent);
        const vec<C> g = weight * (load(up.g + x) * by);
        const auto empty = inverse == zero;
        store(out, xsimd::select(taint, nan, xsimd::select(empty, zero, g)));
        store(out + L, xsimd::select(taint, nan, xsimd::select(empty, zero, g * (load(up.o + x) * lift))));
      }
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
