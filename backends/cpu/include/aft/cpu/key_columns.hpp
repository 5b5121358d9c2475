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

inline constexpr index_t column_chunk = 32;  // 2 x 32 vectors a lane tile stay in the first-level cache

/// P[s] = [v, k] for keys [s0, s1) of `count` lane tiles, P of one after the other; hidden keys and idle lanes -inf.
///
/// A lane tile is one cache line a row, which the hardware foresees badly. So a row is read for all tiles of the group,
/// which lie side by side, the rows to come are asked for, and each row is read from memory once.
template <class C>
inline void stage_keys(const problem& p, index_t count, const lane_tile<C>* tiles, index_t s0, index_t s1, C* P) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const index_t group = p.d / p.hk;
  const lane_field<C> k0(p.k, p.grid, tiles[0], group), v0(p.v, p.grid, tiles[0], 1);
  const lane_field<C> k1(p.k, p.grid, tiles[count - 1], group), v1(p.v, p.grid, tiles[count - 1], 1);
  const index_t apart = (count - 1) * L;
  const bool plain = p.k.type == dtype_of<C> && p.v.type == dtype_of<C> && k0.whole_rows() && v0.whole_rows() &&
                     k1.whole_rows() && v1.whole_rows() && k1.base - k0.base == apart && v1.base - v0.base == apart;
  if (plain) {
    constexpr index_t ahead = tuning<C>::rows_ahead;
    const index_t k_step = p.k.sx[2], v_step = p.v.sx[2];
    const C* k = reinterpret_cast<const C*>(p.k.data) + k0.base + s0 * k_step;
    const C* v = reinterpret_cast<const C*>(p.v.data) + v0.base + s0 * v_step;
    for (index_t s = s0; s < s1; ++s, k += k_step, v += v_step) {
      const index_t soon = s + ahead < p.Tk ? ahead : 0;
      for (index_t i = 0; i < count; ++i) {
        __builtin_prefetch(k + soon * k_step + i * L);
        __builtin_prefetch(v + soon * v_step + i * L);
        C* const at = P + (i * p.Tk + s) * N;
        store(at, load(v + i * L));
        store(at + L, load(k + i * L));
      }
    }
  } else {
    C rows[column_chunk * L];
    for (index_t i = 0; i < count; ++i) {
      C* const at = P + (i * p.Tk + s0) * N;
      lane_field<C>(p.v, p.grid, tiles[i], 1).read(s0, s1, rows);
      for (index_t s = 0; s < s1 - s0; ++s) store(at + s * N, load(rows + s * L));
      lane_field<C>(p.k, p.grid, tiles[i], group).read(s0, s1, rows, -inf);
      for (index_t s = 0; s < s1 - s0; ++s) store(at + s * N + L, load(rows + s * L));
    }
  }
  for (index_t i = 0; i < count; ++i) hide_keys(p, tiles[i], s0, s1, P + (i * p.Tk + s0) * N + L, N);
}

/// Adds `count` staged keys to a lane tile's range.
template <class C>
[[gnu::flatten]] inline void scan_keys(const C* P, index_t count, key_range<C>& range) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const vec<C> zero(C(0));
  vec<C> top = load(range.key_top), high = load(range.value_top), low = load(range.value_low);
  for (index_t s = 0; s < count; ++s) {
    const vec<C> key = load(P + s * N + L);
    const vec<C> size = xsimd::abs(load(P + s * N));
    const auto seen = differs<C>(key, vec<C>(-inf));
    top = max_ignoring_nan<C>(top, key);
    // One maximum after the other is all that a key waits for.
    high = max_ignoring_nan<C>(high, xsimd::select(seen && (size < vec<C>(inf)), size, zero));
    low = min_ignoring_nan<C>(low, xsimd::select(seen && (size > zero), size, vec<C>(inf)));
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
[[gnu::flatten]] inline void pack_keys(const problem& p, index_t count, const Tiles& tile_at, C* P,
                                       column_scale<C>* cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  C value_scales[tuning<C>::group][L];
  lane_tile<C> tiles[tuning<C>::group];
  key_range<C> ranges[tuning<C>::group];
  for (index_t i = 0; i < count; ++i) tiles[i] = tile_at(i);
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
    const index_t s1 = s0 + column_chunk < p.Tk ? s0 + column_chunk : p.Tk;
    stage_keys<C>(p, count, tiles, s0, s1, P);
    for (index_t i = 0; i < count; ++i) scan_keys<C>(P + (i * p.Tk + s0) * N, s1 - s0, ranges[i]);
  }
  const vec<C> zero(C(0));
  for (index_t i = 0; i < count; ++i) {
    cs[i] = key_scale<C>(ranges[i], value_scales[i]);
    const vec<C> base = load(cs[i].base), exponent = load(cs[i].exponent), by = load(value_scales[i]);
    C* const columns = P + i * p.Tk * N;
    for (index_t s = 0; s < p.Tk; ++s) {
      C* const at = columns + s * N;
      const vec<C> key = load(at + L);
      const auto seen = differs<C>(key, vec<C>(-std::numeric_limits<C>::infinity()));
      const vec<C> weight = xsimd::select(seen, exp_scaled<C>(key - base, exponent), zero);
      store(at, xsimd::select(seen, weight * (load(at) * by), zero));
      store(at + L, weight);
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
