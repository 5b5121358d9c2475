// SPDX-License-Identifier: Apache-2.0
/// @file stencil/pack_keys.hpp  The keys and values of one lane tile, ready for the stencil.
#pragma once

#include <cmath>

#include "../math/exp_weight.hpp"
#include "../math/power_of_two.hpp"
#include "../tensor/lane_rows.hpp"
#include "tuning.hpp"
#include "weights.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// What P = [exp(k) v 2^-.., exp(k) 2^-exponent] was scaled by, lane by lane.
template <class C>
struct column_scales {
  C exponent[lanes<C>];
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
inline bool set_ordinary_values(const vec<C>& high, const vec<C>& low, column_scales<C>& cs) {
  const vec<C> zero(C(0)), one(C(1)), floor(exp_constants<C>::value_floor);
  const auto none = high == zero;
  store(cs.scale, one);
  store(cs.inverse_scale, one);
  store(cs.all_zero, xsimd::select(none, one, zero));
  store(cs.floor, xsimd::select(low < floor, floor, zero));
  return xsimd::all(none || ((high >= vec<C>(ordinary<C>::value_low)) && (high <= vec<C>(ordinary<C>::value_high))));
}

/// What keys and values are scaled by: 1, which is tried first where a call reads them once; where that does not serve
/// all of a lane tile, 1 for the lanes that it does serve, so that no lane's scale, with which it is proven or not,
/// depends on its neighbours, which may be of another batch element; or each lane's own.
enum class lane_scaling { one, usual, own };

template <class C>
inline void set_value_scales(const vec<C>& high, const vec<C>& low, lane_scaling scaling, column_scales<C>& cs) {
  C max_abs[lanes<C>], lows[lanes<C>];
  store(max_abs, high);
  store(lows, low);
  for (index_t l = 0; l < lanes<C>; ++l) {
    cs.scale[l] = cs.inverse_scale[l] = C(1);
    const bool usual = max_abs[l] >= ordinary<C>::value_low && max_abs[l] <= ordinary<C>::value_high;
    if (scaling == lane_scaling::own || !usual) value_scale(max_abs[l], cs.scale[l], cs.inverse_scale[l]);
    cs.all_zero[l] = max_abs[l] == C(0) ? C(1) : C(0);
    cs.floor[l] = lows[l] * cs.scale[l] < exp_constants<C>::value_floor ? exp_constants<C>::value_floor : C(0);
  }
}

/// exp(key) 2^-exponent. A hidden key gives -0: nothing to a sum, but told apart from a weight that underflowed.
template <class C>
inline vec<C> staged_weight(const vec<C>& key, const vec<C>& exponent) {
  return xsimd::select(key == vec<C>(-std::numeric_limits<C>::infinity()), vec<C>(C(-0.0)),
                       weight_scaled<C>(key, exponent));
}

/// The largest and the least magnitude among the finite values that are seen; 0 counts as none.
template <class C>
struct magnitudes {
  vec<C> high = vec<C>(C(0));
  vec<C> low = vec<C>(std::numeric_limits<C>::infinity());

  void add(const vec<C>& value, const vec_mask<C>& seen) {
    const vec<C> zero(C(0)), inf(std::numeric_limits<C>::infinity());
    const vec<C> size = (xsimd::abs)(value);
    const vec<C> known = xsimd::select(seen && (size < inf), size, zero);
    high = max_ignoring_nan<C>(high, known);
    low = min_ignoring_nan<C>(low, xsimd::select(known > zero, known, inf));
  }
};

/// The same where an infinite value may count as the largest, and one that is not seen is 0.
template <class C>
struct ordinary_magnitudes {
  vec<C> high = vec<C>(C(0));
  vec<C> low = vec<C>(std::numeric_limits<C>::infinity());

  void add(const vec<C>& value) {
    const vec<C> size = (xsimd::abs)(value);
    high = larger_size<C>(high, value);
    low = xsimd::select(size > vec<C>(C(0)), min_ignoring_nan<C>(low, size), low);
  }
};

/// The first visible key of each lane of `weights`, two vectors a key.
template <class C>
inline void find_first_keys(const C* weights, index_t T, column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  for (index_t l = 0; l < L; ++l) {
    cs.first[l] = 0;
    if (cs.empty[l] != C(0)) continue;
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

/// What the scales of a lane tile's keys and values follow from.
template <class C>
struct column_sizes {
  vec<C> top = vec<C>(-std::numeric_limits<C>::infinity());
  magnitudes<C> values;

  /// n keys.
  [[gnu::flatten]] void add(column_rows<C> from, index_t n) {
    for (index_t s = 0; s < n; ++s, from.k += from.k_step, from.v += from.v_step) add(load(from.k), load(from.v));
  }
  void add(const vec<C>& key, const vec<C>& value) {
    top = max_ignoring_nan<C>(top, key);
    values.add(value, !(key == vec<C>(-std::numeric_limits<C>::infinity())));
  }
  void set_scales(const stencil_table<C>& table, lane_scaling scaling, column_scales<C>& cs) const {
    set_key_scales<C>(top, table, cs);
    if (scaling == lane_scaling::usual) {
      const auto usual = top >= vec<C>(ordinary<C>::key_low) && top <= vec<C>(ordinary<C>::key_high);
      store(cs.exponent, xsimd::select(usual, vec<C>(C(0)), load(cs.exponent)));
    }
    set_value_scales<C>(values.high, values.low, scaling, cs);
  }
};

/// P[s] = [exp(k) v, exp(k)] with the scales `cs`, two vectors each; for a hidden key [0, -0], whatever its value is.
/// n keys, which may lie in P. `Measured` adds them to `sizes`.
template <bool Measured, class C>
[[gnu::noinline, gnu::flatten]] inline void weigh_columns(const column_scales<C>& cs, column_rows<C> from, index_t n,
                                                          C* P, column_sizes<C>& sizes) {
  constexpr index_t L = lanes<C>;
  const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
  const vec<C> exponent = load(cs.exponent), by = load(cs.scale);
  column_sizes<C> all = sizes;
  for (index_t s = 0; s < n; ++s, P += 2 * L, from.k += from.k_step, from.v += from.v_step) {
    const vec<C> key = load(from.k), value = load(from.v);
    if constexpr (Measured) all.add(key, value);
    const vec<C> weight = staged_weight<C>(key, exponent);
    store(P, xsimd::select(key == hidden, zero, weight * (value * by)));
    store(P + L, weight);
  }
  if constexpr (Measured) sizes = all;
}

/// weigh_columns for all keys, with the scales that they ask for.
template <class C>
inline void fill_columns(const problem& p, const stencil_table<C>& table, const column_rows<C>& from,
                         lane_scaling scaling, C* P, column_scales<C>& cs) {
  column_sizes<C> sizes;
  sizes.add(from, p.Tk);
  sizes.set_scales(table, scaling, cs);
  weigh_columns<false>(cs, from, p.Tk, P, sizes);
  find_first_keys<C>(P + lanes<C>, p.Tk, cs);
}

/// The same in one pass where keys and values are of ordinary size; else, as they may have lain in P, the tile is
/// staged from the caller's arrays.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void fill_ordinary_columns(const problem& p, const stencil_table<C>& table,
                                                                  const lane_tile<C>& tile, column_rows<C> from, C* P,
                                                                  column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const vec<C> zero(C(0));
  vec<C> top(-inf);
  ordinary_magnitudes<C> sizes;
  for (index_t s = 0; s < p.Tk; ++s, from.k += from.k_step, from.v += from.v_step) {
    C* const at_key = P + s * 2 * L;
    const vec<C> key = load(from.k);
    const vec<C> value = xsimd::select(key == vec<C>(-inf), zero, load(from.v));
    const vec<C> weight = staged_weight<C>(key, zero);
    top = max_ignoring_nan<C>(top, key);
    sizes.add(value);
    store(at_key, weight * value);
    store(at_key + L, weight);
  }
  if (set_ordinary_keys<C>(top, table, cs) && set_ordinary_values<C>(sizes.high, sizes.low, cs)) {
    find_first_keys<C>(P + L, p.Tk, cs);
    return;
  }
  stage_columns<C>(p, &tile, 1, 0, p.Tk, P, 0);
  fill_columns<C>(p, table, column_rows<C>::staged(P), lane_scaling::usual, P, cs);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
