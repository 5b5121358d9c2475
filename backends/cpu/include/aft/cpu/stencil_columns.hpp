// SPDX-License-Identifier: Apache-2.0
/// @file stencil_columns.hpp  The keys and values of one lane tile, ready for the stencil.
#pragma once

#include <cmath>

#include "exp.hpp"
#include "stencil_weights.hpp"
#include "tuning_stencil.hpp"
#include "value_scale.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// What P = [exp(k) v 2^-.., exp(k) 2^-exponent] was scaled by, lane by lane.
template <class C>
struct column_scales {
  C exponent[lanes<C>];
  C scale[lanes<C>];    ///< power of two that takes the largest visible |v| near 1
  C unscale[lanes<C>];
  C floor[lanes<C>];    ///< |num| / den below it proves nothing; 0 where all |v| are of one size
  C usable[lanes<C>];   ///< 0: the lane is left to the exact path
  C empty[lanes<C>];    ///< 1: no key at all is visible
  index_t first[lanes<C>];  ///< the first visible key
};

/// Fills P[s], two vectors each. A hidden key holds [0, -0], whatever its value holds: nothing to a sum, but told
/// apart by its sign from a weight that underflowed.
template <class C>
inline void fill_columns(const problem& p, const lane_tile<C>& tile, const stencil_table<C>& table, C* P,
                         column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t block = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
  const lane_field<C> values(p.v, p.grid, tile, 1);
  C k[block * L], v[block * L];
  const vec<C> zero(C(0));
  vec<C> top(-inf), high(zero), low(inf), hidden_any(zero);
  for (index_t s0 = 0; s0 < p.Tk; s0 += block) {
    const index_t s1 = s0 + block < p.Tk ? s0 + block : p.Tk;
    keys.read(s0, s1, k, -inf);
    values.read(s0, s1, v);
    hide_keys(p, tile, s0, s1, k);
    for (index_t s = 0; s < s1 - s0; ++s) {
      const vec<C> key = load(k + s * L);
      const vec<C> value = load(v + s * L);
      const vec<C> size = xsimd::abs(value);
      const auto seen = !(key == vec<C>(-inf));
      top = max_ignoring_nan<C>(top, key);
      high = xsimd::select(seen && (size > high) && (size < vec<C>(inf)), size, high);
      low = xsimd::select(seen && (size < low) && (size > zero), size, low);
      hidden_any = xsimd::select(seen, hidden_any, vec<C>(C(1)));
      // Kept here between the two passes, so that strided storage is walked once.
      store(P + (s0 + s) * 2 * L, value);
      store(P + (s0 + s) * 2 * L + L, key);
    }
  }
  const auto empty = top == vec<C>(-inf);
  const auto usable = xsimd::abs(top) <= vec<C>(stencil_range<C>);
  const vec<C> exponent = exponent_of<C>(xsimd::select(usable, top, zero));
  C highs[L], lows[L];
  store(highs, high);
  store(lows, low);
  for (index_t l = 0; l < L; ++l) {
    value_scale(highs[l], cs.scale[l], cs.unscale[l]);
    cs.floor[l] = lows[l] * cs.scale[l] < exp_constants<C>::value_floor ? exp_constants<C>::value_floor : C(0);
  }
  const vec<C> by = load(cs.scale);
  for (index_t s = 0; s < p.Tk; ++s) {
    C* const at_key = P + s * 2 * L;
    const vec<C> key = load(at_key + L);
    const auto seen = !(key == vec<C>(-inf));
    const vec<C> weight = exp_scaled<C>(key, exponent);
    store(at_key, xsimd::select(seen, weight * (load(at_key) * by), zero));
    store(at_key + L, xsimd::select(seen, weight, vec<C>(C(-0.0))));
  }
  store(cs.exponent, exponent);
  store(cs.usable, xsimd::select(usable, load(table.usable), zero));
  store(cs.empty, xsimd::select(empty, vec<C>(C(1)), zero));
  C hidden[L];
  store(hidden, hidden_any);
  for (index_t l = 0; l < L; ++l) {
    cs.first[l] = 0;
    if (hidden[l] == C(0)) continue;
    while (cs.first[l] < p.Tk && std::signbit(P[(cs.first[l] * 2 + 1) * L + l])) ++cs.first[l];
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
