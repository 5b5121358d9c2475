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
};

inline constexpr index_t column_chunk = 32;  // staged keys: 2 x 32 vectors, well inside the first-level cache

template <class C>
inline key_range<C> scan_keys(const problem& p, const lane_tile<C>& tile) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
  const lane_field<C> values(p.v, p.grid, tile, 1);
  C k[column_chunk * L], v[column_chunk * L];
  vec<C> top(-inf), high(C(0)), low(inf);
  const vec<C> zero(C(0));
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
    const index_t s1 = s0 + column_chunk < p.Tk ? s0 + column_chunk : p.Tk;
    keys.read(s0, s1, k, -inf);
    values.read(s0, s1, v);
    hide_keys(p, tile, s0, s1, k);
    for (index_t s = 0; s < s1 - s0; ++s) {
      const vec<C> key = load(k + s * L);
      const vec<C> size = xsimd::abs(load(v + s * L));
      const auto seen = key != vec<C>(-inf);
      top = max_ignoring_nan<C>(top, key);
      high = xsimd::select(seen && (size > high) && (size < vec<C>(inf)), size, high);
      low = xsimd::select(seen && (size < low) && (size > zero), size, low);
    }
  }
  key_range<C> range;
  store(range.key_top, top);
  store(range.value_top, high);
  store(range.value_low, low);
  return range;
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
template <class C>
inline void pack_keys(const problem& p, const lane_tile<C>& tile, C* P, column_scale<C>& cs) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  C value_scales[L];
  cs = key_scale<C>(scan_keys<C>(p, tile), value_scales);
  const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
  const lane_field<C> values(p.v, p.grid, tile, 1);
  C k[column_chunk * L], v[column_chunk * L];
  const vec<C> zero(C(0)), base = load(cs.base), exponent = load(cs.exponent), by = load(value_scales);
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
    const index_t s1 = s0 + column_chunk < p.Tk ? s0 + column_chunk : p.Tk;
    keys.read(s0, s1, k, -inf);
    values.read(s0, s1, v);
    hide_keys(p, tile, s0, s1, k);
    for (index_t s = 0; s < s1 - s0; ++s, P += tuning<C>::columns) {
      const vec<C> key = load(k + s * L);
      const auto seen = key != vec<C>(-inf);
      const vec<C> weight = xsimd::select(seen, exp_scaled<C>(key - base, exponent), zero);
      store(P, xsimd::select(seen, weight * (load(v + s * L) * by), zero));
      store(P + L, weight);
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
