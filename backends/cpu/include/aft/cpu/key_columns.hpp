// SPDX-License-Identifier: Apache-2.0
/// @file key_columns.hpp  Packs P[s] = [exp(k) v | exp(k)], the columns of the forward fold.
#pragma once

#include <limits>

#include "pair_fold.hpp"
#include "stage.hpp"
#include "value_scale.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The largest key of each lane (NaN passed over), and of |v| over the keys that are not hidden the largest finite
/// and the smallest nonzero.
template <class C>
struct key_range {
  C key_top[lanes<C>];
  C value_top[lanes<C>];
  C value_low[lanes<C>];

  key_range() {
    for (index_t l = 0; l < lanes<C>; ++l) {
      key_top[l] = -std::numeric_limits<C>::infinity();
      value_top[l] = C(0);
      value_low[l] = std::numeric_limits<C>::infinity();
    }
  }
};

inline constexpr index_t column_chunk = 32;  // staged keys: 2 x 32 vectors, well inside the first-level cache

/// Adds keys [s0, s1) to a lane tile's range.
template <class C>
inline void scan_keys(const problem& p, const lane_tile<C>& tile, index_t s0, index_t s1, key_range<C>& range) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
  const lane_field<C> values(p.v, p.grid, tile, 1);
  C k[column_chunk * L], v[column_chunk * L];
  keys.prefetch(s1, s1 + column_chunk, p.Tk);
  values.prefetch(s1, s1 + column_chunk, p.Tk);
  keys.read(s0, s1, k, -inf);
  values.read(s0, s1, v);
  hide_keys(p, tile, s0, s1, k);
  const vec<C> zero(C(0));
  vec<C> top = load(range.key_top), high = load(range.value_top), low = load(range.value_low);
  for (index_t s = 0; s < s1 - s0; ++s) {
    const vec<C> key = load(k + s * L);
    const vec<C> size = xsimd::abs(load(v + s * L));
    const auto seen = differs<C>(key, vec<C>(-inf));
    top = max_ignoring_nan<C>(top, key);
    high = xsimd::select(seen && (size > high) && (size < vec<C>(inf)), size, high);
    low = xsimd::select(seen && (size < low) && (size > zero), size, low);
  }
  store(range.key_top, top);
  store(range.value_top, high);
  store(range.value_low, low);
}

/// The scales of a lane tile from its range.
template <class C>
inline column_scale<C> key_scale(const key_range<C>& range, C* value_scales) {
  using k_ = exp_constants<C>;
  column_scale<C> cs;
  C small[lanes<C>];
  for (index_t l = 0; l < lanes<C>; ++l) {
    const C top = range.key_top[l];
    const bool none = top == -std::numeric_limits<C>::infinity();
    const bool beyond = !none && (top > k_::range || top < -k_::range);
    cs.base[l] = beyond ? top : C(0);
    small[l] = none || beyond ? C(0) : top;
    value_scale(range.value_top[l], value_scales[l], cs.unscale[l]);
    // Values all of one size (or 0) are summed safely; where some are far smaller a row may see only those.
    cs.floor[l] = range.value_low[l] * value_scales[l] < k_::value_floor ? k_::value_floor : C(0);
  }
  store(cs.exponent, exponent_of<C>(load(small)));
  return cs;
}

/// P[s][0] = exp(k - scale) v, P[s][1] = exp(k - scale); both exactly 0 for a hidden key, whatever its v holds.
/// `count` lane tiles at once, P one after the other: they lie side by side in memory, so a row of k is fetched once.
template <class C, class Tiles>
inline void pack_keys(const problem& p, index_t count, const Tiles& tile_at, C* P, column_scale<C>* cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  constexpr C inf = std::numeric_limits<C>::infinity();
  C value_scales[tuning<C>::group][L];
  lane_tile<C> tiles[tuning<C>::group];
  key_range<C> ranges[tuning<C>::group];
  for (index_t i = 0; i < count; ++i) tiles[i] = tile_at(i);
  const auto end_of = [&](index_t s0) { return s0 + column_chunk < p.Tk ? s0 + column_chunk : p.Tk; };
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk)
    for (index_t i = 0; i < count; ++i) scan_keys<C>(p, tiles[i], s0, end_of(s0), ranges[i]);
  for (index_t i = 0; i < count; ++i) cs[i] = key_scale<C>(ranges[i], value_scales[i]);

  C k[column_chunk * L], v[column_chunk * L];
  const vec<C> zero(C(0));
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
    const index_t s1 = end_of(s0);
    for (index_t i = 0; i < count; ++i) {
      lane_field<C>(p.k, p.grid, tiles[i], p.d / p.hk).read(s0, s1, k, -inf);
      lane_field<C>(p.v, p.grid, tiles[i], 1).read(s0, s1, v);
      hide_keys(p, tiles[i], s0, s1, k);
      const vec<C> base = load(cs[i].base), exponent = load(cs[i].exponent), by = load(value_scales[i]);
      C* out = P + (i * p.Tk + s0) * N;
      for (index_t s = 0; s < s1 - s0; ++s, out += N) {
        const vec<C> key = load(k + s * L);
        const auto seen = differs<C>(key, vec<C>(-inf));
        const vec<C> weight = xsimd::select(seen, exp_scaled<C>(key - base, exponent), zero);
        store(out, xsimd::select(seen, weight * (load(v + s * L) * by), zero));
        store(out + L, weight);
      }
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
