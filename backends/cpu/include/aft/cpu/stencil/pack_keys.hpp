// SPDX-License-Identifier: Apache-2.0
/// @file stencil/pack_keys.hpp  The keys and values of one lane tile, ready for the stencil.
#pragma once

#include <cmath>

#include "../math/exp_weight.hpp"
#include "../math/power_of_two.hpp"
#include "../softmax/far_lanes.hpp"
#include "../softmax/first_key.hpp"
#include "../tensor/lane_rows.hpp"
#include "../tensor/visible_keys.hpp"
#include "tuning.hpp"
#include "weights.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// What P = [exp(k) v 2^-.., exp(k) 2^-exponent / unit] was scaled by, lane by lane.
template <class C>
struct column_scales {
  C exponent[lanes<C>];
  C unit[lanes<C>];   ///< see first_key
  C scale[lanes<C>];  ///< power of two that takes the largest visible |v| near 1
  C inverse_scale[lanes<C>];
  C floor[lanes<C>];        ///< |num| / den below it proves nothing; 0 where all |v| are of one size
  C usable[lanes<C>];       ///< 0: the lane is left to the exact path
  C all_zero[lanes<C>];     ///< 1: every visible v is 0 (or not finite)
  C empty[lanes<C>];        ///< 1: no key at all is visible
  C has_hidden[lanes<C>];   ///< 1: some key is hidden; set by stage_head_group_keys only
  index_t first[lanes<C>];  ///< the first visible key
};

/// P[s - s0] = [v, k] of keys [s0, s1) of `count` lane tiles, `apart` from one tile to the next; hidden keys -inf, idle
/// lanes hidden.
///
/// Loops that do nothing but load and store: what counts is how many loads are under way at once. With the statistics
/// in the same loop reading took twice as long (Zen 5, 2026-11, 32 x 196 x 384 floats).
template <class C>
[[gnu::noinline]] inline void stage_columns(const problem& p, const lane_tile<C>* tiles, index_t count, index_t s0,
                                            index_t s1, C* P, index_t apart) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  read_tiles<C>(p.v, p.grid, tiles, count, 1, s0, s1, P, apart, 2 * L);
  read_tiles<C>(p.k, p.grid, tiles, count, p.d / p.hk, s0, s1, P + L, apart, 2 * L, -inf);
  for (index_t i = 0; i < count; ++i) hide_keys(p, tiles[i], s0, s1, P + i * apart + L, 2 * L);
}

template <class C>
inline void set_key_scales(const vec<C>& top, const stencil_table<C>& table, column_scales<C>& cs) {
  const vec<C> zero(C(0));
  const auto usable = (xsimd::abs)(top) <= vec<C>(stencil_range<C>);
  store(cs.exponent, exponent_of<C>(xsimd::select(usable, top, zero)));
  store(cs.usable, xsimd::select(usable, load(table.usable), zero));
  store(cs.empty, xsimd::select(top == vec<C>(-std::numeric_limits<C>::infinity()), vec<C>(C(1)), zero));
}

/// For keys and values that were staged with scale 1. False where some lane needs another: `cs` is not to be used then.
template <class C>
inline bool set_ordinary_keys(const vec<C>& top, const stencil_table<C>& table, column_scales<C>& cs) {
  const auto none = top == vec<C>(-std::numeric_limits<C>::infinity());
  set_key_scales<C>(top, table, cs);
  store(cs.exponent, vec<C>(C(0)));
  return xsimd::all(none || ((top >= vec<C>(ordinary<C>::key_low)) && (top <= vec<C>(ordinary<C>::key_high))));
}
template <class C>
inline bool set_ordinary_values(const magnitudes<C>& sizes, column_scales<C>& cs) {
  const vec<C> zero(C(0)), one(C(1)), floor(exp_constants<C>::value_floor);
  const auto none = sizes.high == zero;
  store(cs.scale, one);
  store(cs.inverse_scale, one);
  store(cs.all_zero, xsimd::select(none, one, zero));
  store(cs.floor, xsimd::select(sizes.low < floor, floor, zero));
  return xsimd::all(
      none || ((sizes.high >= vec<C>(ordinary<C>::value_low)) && (sizes.high <= vec<C>(ordinary<C>::value_high))));
}

/// What keys and values are scaled by: 1, which is tried first where a call reads them once; where that does not serve
/// all of a lane tile, 1 for the lanes that it does serve, so that no lane's scale, with which it is proven or not,
/// depends on its neighbours, which may be of another batch element; or each lane's own.
enum class lane_scaling { one, usual, own };

template <class C>
inline void set_value_scales(const magnitudes<C>& sizes, lane_scaling scaling, column_scales<C>& cs) {
  C max_abs[lanes<C>], lows[lanes<C>];
  store(max_abs, sizes.high);
  store(lows, sizes.low);
  for (index_t l = 0; l < lanes<C>; ++l) {
    cs.scale[l] = cs.inverse_scale[l] = C(1);
    const bool usual = max_abs[l] >= ordinary<C>::value_low && max_abs[l] <= ordinary<C>::value_high;
    if (scaling == lane_scaling::own || !usual) value_scale(max_abs[l], cs.scale[l], cs.inverse_scale[l]);
    cs.all_zero[l] = max_abs[l] == C(0) ? C(1) : C(0);
    cs.floor[l] = lows[l] * cs.scale[l] < exp_constants<C>::value_floor ? exp_constants<C>::value_floor : C(0);
  }
}

/// Whether exp(k) or exp(k) v of some visible key of a lane may have underflowed, which units of a sharp table or of
/// its payload would make to count. `weights` are the lane's, two vectors apart.
template <class C>
inline bool loses_keys(const column_scales<C>& cs, index_t lane, const C* weights, index_t keys) {
  // No value is below the floor beside it.
  constexpr C least = sizeof(C) == 4 ? C(0x1p-90) : C(0x1p-700);
  bool loses = cs.floor[lane] != C(0);
  for (index_t s = 0; s < keys && !loses; ++s) {
    const C weight = weights[2 * s * lanes<C>];
    loses = weight < least && !std::signbit(weight);
  }
  return loses;
}

/// exp(key) 2^-exponent per_unit. A hidden key gives -0: nothing to a sum, but told apart from a weight that
/// underflowed.
template <class C>
inline vec<C> staged_weight(const vec<C>& key, const vec<C>& exponent, const vec<C>& per_unit) {
  return xsimd::select(key == vec<C>(-std::numeric_limits<C>::infinity()), vec<C>(C(-0.0)),
                       weight_scaled<C>(key, exponent) * per_unit);
}

/// The first visible key of each lane of `weights`, two vectors a key. A key of another rank comes before all.
template <class C>
inline void find_first_keys(const C* weights, index_t T, const far_lanes<C>& afar, column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  for (index_t l = 0; l < L; ++l) {
    cs.first[l] = 0;
    if (cs.empty[l] != C(0) || (afar.any && afar.sees(l))) continue;
    while (cs.first[l] < T && std::signbit(weights[cs.first[l] * 2 * L + l])) ++cs.first[l];
  }
}

/// Keys and values of a lane tile, rows that are vectors: where the caller has them, or staged to P.
template <class C>
struct column_rows {
  const C *k, *v;
  index_t k_step, v_step;

  static column_rows staged(const C* P) { return {P + lanes<C>, P, 2 * lanes<C>, 2 * lanes<C>}; }
  /// From key s on, of the lane tile that lies so many lanes after the one whose rows they are.
  static column_rows in_place(const lane_rows<C>& keys, const lane_rows<C>& values, index_t s = 0, index_t after = 0) {
    return {keys.row(s) + after, values.row(s) + after, keys.step(), values.step()};
  }
};

/// Adds n keys and values to a range.
template <class C>
[[gnu::flatten]] inline void measure_columns(column_rows<C> from, index_t n, key_range<C>& range) {
  for (index_t s = 0; s < n; ++s, from.k += from.k_step, from.v += from.v_step) range.add(load(from.k), load(from.v));
}

template <class C>
inline void set_scales(const key_range<C>& range, const stencil_table<C>& table, lane_scaling scaling,
                       column_scales<C>& cs) {
  set_key_scales<C>(range.top, table, cs);
  if (scaling == lane_scaling::usual) {
    const auto usual = range.top >= vec<C>(ordinary<C>::key_low) && range.top <= vec<C>(ordinary<C>::key_high);
    store(cs.exponent, xsimd::select(usual, vec<C>(C(0)), load(cs.exponent)));
  }
  set_value_scales<C>(range.values, scaling, cs);
}

/// P[s] = [exp(k) v, exp(k)] with the scales `cs`, two vectors each; for a hidden key [0, -0], whatever its value is.
/// n keys, which may lie in P. `Measured` adds them to `range`.
template <bool Measured, class C>
[[gnu::noinline, gnu::flatten]] inline void weigh_columns(const column_scales<C>& cs, column_rows<C> from, index_t n,
                                                          C* P, key_range<C>& range) {
  constexpr index_t L = lanes<C>;
  const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
  const vec<C> exponent = load(cs.exponent), by = load(cs.scale), per_unit = vec<C>(C(1)) / load(cs.unit);
  key_range<C> all = range;
  for (index_t s = 0; s < n; ++s, P += 2 * L, from.k += from.k_step, from.v += from.v_step) {
    const vec<C> key = load(from.k), value = load(from.v);
    if constexpr (Measured) all.add(key, value);
    const vec<C> weight = staged_weight<C>(key, exponent, per_unit);
    store(P, xsimd::select(key == hidden, zero, weight * (value * by)));
    store(P + L, weight);
  }
  if constexpr (Measured) range = all;
}

/// The column of the keys of other ranks.
template <class C>
inline vec_sum<C> far_column(const far_lanes<C>& afar, const column_scales<C>& cs) {
  if (!afar.any) return zero_sum<C>();
  const vec<C> zero(C(0)), per_unit = vec<C>(C(1)) / load(cs.unit);
  const vec<C> weight = xsimd::select(afar.seen(), weight_scaled<C>(afar.key, load(cs.exponent)) * per_unit, zero);
  return afar.times({weight * (afar.value * load(cs.scale)), weight});
}

/// weigh_columns for all keys, with the scales that they ask for and the unit `unit`.
template <class C>
inline void fill_columns(const problem& p, const stencil_table<C>& table, const column_rows<C>& from,
                         const far_lanes<C>& afar, lane_scaling scaling, const vec<C>& unit, C* P,
                         column_scales<C>& cs) {
  store(cs.unit, unit);
  key_range<C> range;
  afar.measure(range);
  measure_columns<C>(from, p.Tk, range);
  set_scales<C>(range, table, scaling, cs);
  weigh_columns<false>(cs, from, p.Tk, P, range);
  find_first_keys<C>(P + lanes<C>, p.Tk, afar, cs);
}

/// The same in one pass where keys and values are of ordinary size; else, as they may have lain in P, the tile is
/// staged from the caller's arrays.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void fill_ordinary_columns(const problem& p, const stencil_table<C>& table,
                                                                  const lane_tile<C>& tile, column_rows<C> from,
                                                                  const far_lanes<C>& afar, C* P,
                                                                  column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const vec<C> zero(C(0)), unit = first_key<C>::at(from.k, p, tile).unit(), per_unit = vec<C>(C(1)) / unit;
  store(cs.unit, unit);
  vec<C> top = afar.key;
  magnitudes<C> sizes;
  if (afar.any) sizes.add_any(afar.value);
  for (index_t s = 0; s < p.Tk; ++s, from.k += from.k_step, from.v += from.v_step) {
    C* const at_key = P + s * 2 * L;
    const vec<C> key = load(from.k);
    const vec<C> value = xsimd::select(key == vec<C>(-inf), zero, load(from.v));
    const vec<C> weight = staged_weight<C>(key, zero, per_unit);
    top = max_ignoring_nan<C>(top, key);
    sizes.add_any(value);
    store(at_key, weight * value);
    store(at_key + L, weight);
  }
  if (set_ordinary_keys<C>(top, table, cs) && set_ordinary_values<C>(sizes, cs)) {
    find_first_keys<C>(P + L, p.Tk, afar, cs);
    return;
  }
  stage_columns<C>(p, &tile, 1, 0, p.Tk, P, 0);
  fill_columns<C>(p, table, column_rows<C>::staged(P), afar, lane_scaling::usual, unit, P, cs);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
