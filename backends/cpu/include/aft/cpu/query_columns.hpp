// SPDX-License-Identifier: Apache-2.0
/// @file query_columns.hpp  Packs P[t] = [exp(-lse) g | exp(-lse) g o], the columns of the transposed fold.
#pragma once

#include <limits>

#include "key_columns.hpp"
#include "upstream.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The largest numbers of a lane tile's rows, for its scales.
template <class C>
struct query_range {
  C top[lanes<C>];      ///< exponent of exp(-lse)
  C high[lanes<C>];     ///< |g|
  C average[lanes<C>];  ///< |o|
  C beyond[lanes<C>];   ///< 1: logits beyond exp_constants::range

  query_range() {
    for (index_t l = 0; l < lanes<C>; ++l) {
      top[l] = -std::numeric_limits<C>::infinity();
      high[l] = average[l] = beyond[l] = C(0);
    }
  }
};

/// P[t] = [inverse g, o] for queries [t0, t1) and exponents[t], so that exp(-lse) g = P 2^-exponent. A row that sees no
/// key has zeros.
template <class C>
[[gnu::flatten]] inline void stage_queries(const gradient_inputs& in, const lane_tile<C>& tile, index_t t0, index_t t1,
                                           C* P, C* exponents, query_range<C>& range) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  const vec<C> zero(C(0)), one(C(1)), inf(std::numeric_limits<C>::infinity());
  upstream<C, column_chunk> up;
  up.read(in, tile, t0, t1);
  vec<C> top = load(range.top), high = load(range.high), most = load(range.average), beyond = load(range.beyond);
  for (index_t t = 0; t < t1 - t0; ++t) {
    const vec<C> inverse = load(up.inverse + t * L);
    const vec<C> exponent = load(up.exponent + t * L);
    const auto empty = inverse == zero;
    const vec<C> g = xsimd::select(empty, zero, inverse * load(up.g + t * L));
    const vec<C> o = load(up.o + t * L);
    top = xsimd::select(!empty && (-exponent > top), -exponent, top);
    high = xsimd::select((xsimd::abs(g) > high) && (xsimd::abs(g) < inf), xsimd::abs(g), high);
    most = xsimd::select((xsimd::abs(o) > most) && (xsimd::abs(o) < inf), xsimd::abs(o), most);
    beyond = xsimd::select(differs<C>(load(up.base_hi + t * L), zero), one, beyond);
    store(P + t * N, g);
    store(P + t * N + L, o);
    store(exponents + t * L, exponent);
  }
  store(range.top, top);
  store(range.high, high);
  store(range.average, most);
  store(range.beyond, beyond);
}

/// scales[i].exponent holds what exp(-lse) was divided by, unscale undoes the power of two that g was multiplied by,
/// unlift that of o: averages near the bottom of the range are lifted, else v A - B would cancel between subnormal
/// numbers. Lanes with logits beyond exp_constants::range are packed as NaN, which sends their keys to the exact sums.
/// `count` lane tiles at once, like pack_keys; `exponents` has room for Tq vectors.
template <class C, class Tiles>
[[gnu::flatten]] inline void pack_queries(const gradient_inputs& in, index_t count, const Tiles& tile_at, C* exponents,
                                          C* P, column_scale<C>* cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  const index_t T = in.p->Tq;
  const vec<C> zero(C(0)), nan(std::numeric_limits<C>::quiet_NaN());
  for (index_t i = 0; i < count; ++i, P += T * N, ++cs) {
    const lane_tile<C> tile = tile_at(i);
    query_range<C> range;
    for (index_t t0 = 0; t0 < T; t0 += column_chunk) {
      const index_t t1 = t0 + column_chunk < T ? t0 + column_chunk : T;
      stage_queries<C>(in, tile, t0, t1, P + t0 * N, exponents + t0 * L, range);
    }
    C scale[L];
    for (index_t l = 0; l < L; ++l) {
      value_scale(range.high[l], scale[l], cs->unscale[l]);
      value_scale(range.average[l] < C(1) ? range.average[l] : C(0), cs->lift[l], cs->unlift[l]);
    }
    const vec<C> top = load(range.top);
    store(cs->exponent, xsimd::select(top > vec<C>(-std::numeric_limits<C>::infinity()), top, zero));
    store(cs->base, zero);
    store(cs->floor, zero);
    const auto taint = load(range.beyond) > zero;
    const vec<C> by = load(scale), exponent = load(cs->exponent), lift = load(cs->lift);
    for (index_t t = 0; t < T; ++t) {
      const vec<C> g = (load(P + t * N) * by) * pow2<C>(-load(exponents + t * L) - exponent);
      store(P + t * N + L, xsimd::select(taint, nan, g * (load(P + t * N + L) * lift)));
      store(P + t * N, xsimd::select(taint, nan, g));
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
