// SPDX-License-Identifier: Apache-2.0
/// @file gemm/pack_queries.hpp  Packs P[t] = [exp(-lse) g | exp(-lse) g o], the columns of the transposed fold.
#pragma once

#include <limits>

#include "../runtime/inplace_vector.hpp"
#include "../softmax/saved_rows.hpp"
#include "pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

inline constexpr index_t query_chunk = 8;  // rows that are staged together: six arrays

/// Numbers that are staged of a lane tile: of a wide group more than a stack may have to hold.
template <class C>
inline constexpr index_t staged_queries = 6 * query_chunk* lanes<C>;

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

/// P[t] = [inverse g, o] for queries [t0, t1) of `count` lane tiles and exponents[t], so that exp(-lse) g =
/// P 2^-exponent; those of a tile lie Tq positions after those of the tile before. A row that sees no key has zeros.
/// `buffers` has room for staged_queries numbers of each tile.
template <class C>
[[gnu::flatten]] inline void stage_queries(const gradient_inputs& in, const lane_tile<C>* tiles, index_t count,
                                           index_t t0, index_t t1, C* P, C* exponents, C* buffers,
                                           query_range<C>* ranges) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  const index_t T = in.p->Tq;
  const vec<C> zero(C(0)), one(C(1)), inf(std::numeric_limits<C>::infinity()), none(-inf);
  const query_rows<C> up(in, tiles, count, t0, t1, buffers, query_chunk * count * L);
  for (index_t i = 0; i < count; ++i) {
    query_range<C>& range = ranges[i];
    C* const columns = P + i * T * N;
    vec<C> top = load(range.top), high = load(range.high), most = load(range.average), beyond = load(range.beyond);
    for (index_t t = t0; t < t1; ++t) {
      const index_t soon = t + tuning<C>::prefetch_distance < T ? tuning<C>::prefetch_distance : 0;
      const lane_state<C> state = up.weights(t - t0, i, soon);
      const auto empty = state.inverse == zero;
      const vec<C> g = xsimd::select(empty, zero, state.inverse * up.g(t - t0, i, soon));
      const vec<C> o = xsimd::select(empty, zero, up.o(t - t0, i, soon));
      // One maximum after the other is all that a row waits for.
      const vec<C> upper = (xsimd::abs)(g), average = (xsimd::abs)(o);
      top = max_ignoring_nan<C>(top, xsimd::select(empty, none, -state.exponent));
      high = max_ignoring_nan<C>(high, xsimd::select(upper < inf, upper, zero));
      most = max_ignoring_nan<C>(most, xsimd::select(average < inf, average, zero));
      beyond = xsimd::select(differs<C>(state.base_hi, zero), one, beyond);
      store(columns + t * N, g);
      store(columns + t * N + L, o);
      store(exponents + (i * T + t) * L, state.exponent);
    }
    store(range.top, top);
    store(range.high, high);
    store(range.average, most);
    store(range.beyond, beyond);
  }
}

/// scales[i].exponent holds what exp(-lse) was divided by, inverse scale undoes the power of two that g was multiplied
/// by, unlift that of o: averages near the bottom of the range are lifted, else v A - B would cancel between subnormal
/// numbers. Lanes with logits beyond exp_constants::range are packed as NaN, which sends their keys to the exact sums.
/// `count` lane tiles at once, like pack_keys; `exponents` has room for Tq vectors of each and for staged_queries
/// numbers besides.
template <class C, class Tiles>
[[gnu::flatten]] inline void pack_queries(const gradient_inputs& in, index_t count, const Tiles& tile_at, C* exponents,
                                          C* P, column_scale<C>* cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  const index_t T = in.p->Tq;
  const vec<C> zero(C(0)), nan(std::numeric_limits<C>::quiet_NaN());
  C* const buffers = exponents + count * T * L;
  inplace_vector<lane_tile<C>, tuning<C>::wide_group> tiles(count);
  inplace_vector<query_range<C>, tuning<C>::wide_group> ranges(count);
  for (index_t i = 0; i < count; ++i) tiles[i] = tile_at(i);
  for (index_t t0 = 0; t0 < T; t0 += query_chunk) {
    const index_t t1 = min_of(t0 + query_chunk, T);
    stage_queries<C>(in, tiles.data(), count, t0, t1, P, exponents, buffers, ranges.data());
  }
  for (index_t i = 0; i < count; ++i, P += T * N, exponents += T * L, ++cs) {
    const query_range<C>& range = ranges[i];
    C scale[L];
    for (index_t l = 0; l < L; ++l) {
      value_scale(range.high[l], scale[l], cs->inverse_scale[l]);
      value_scale(range.average[l] < C(1) ? range.average[l] : C(0), cs->lift[l], cs->unlift[l]);
    }
    // A fraction, see exp_weight, does not count.
    const vec<C> top = load(range.top);
    store(cs->exponent, xsimd::floor(xsimd::select(top > vec<C>(-std::numeric_limits<C>::infinity()), top, zero)));
    store(cs->base, zero);
    store(cs->floor, zero);
    const auto taint = load(range.beyond) > zero;
    const vec<C> by = load(scale), exponent = load(cs->exponent), lift = load(cs->lift);
    for (index_t t = 0; t < T; ++t) {
      const vec<C> g = times_pow2<C>(load(P + t * N) * by, -load(exponents + t * L) - exponent);
      store(P + t * N + L, xsimd::select(taint, nan, g * (load(P + t * N + L) * lift)));
      store(P + t * N, xsimd::select(taint, nan, g));
    }
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
