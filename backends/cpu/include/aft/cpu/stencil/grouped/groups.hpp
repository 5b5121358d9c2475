// SPDX-License-Identifier: Apache-2.0
/// @file stencil/grouped/groups.hpp  Channels that share key and filter, and how what they share reaches their lanes.
#pragma once

#include <numeric>

#include "../../tensor/visible_keys.hpp"
#include "../pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Classes of consecutive channels with one key channel and one head.
template <class C>
struct channel_head_groups {
  index_t size = 1;  ///< channels of a class
  index_t count = 0;

  explicit channel_head_groups(const problem& p)
      : size(std::gcd(p.d / p.bias.heads, p.d / p.hk)),
        count(p.d / size),
        batches_(p.B),
        channels_(p.d),
        serves_(!p.afar.joins_rows()) {}

  /// There are enough channels for one sum to pay that serves them all. Keys of other ranks join each channel's own:
  /// parts of a sequence that is worth cutting are long, and longer than what sums by classes are for.
  bool wide() const { return serves_ && size >= tuning_stencil<C>::grouped_channels && channels_ >= lanes<C>; }
  /// With denominators apart, numerators of two batch elements fill the two vectors of the stencil.
  bool pays() const { return wide() && batches_ > 1; }
  index_t tiles() const { return ceil_div(count, lanes<C>); }
  /// Lanes are the classes from `first` on, below `end`, each by its first channel.
  lane_tile<C> tile(index_t b, index_t first, index_t end) const {
    lane_tile<C> t;
    t.count = end - first < lanes<C> ? end - first : lanes<C>;
    for (index_t l = 0; l < t.count; ++l) {
      t.b[l] = b;
      t.c[l] = (first + l) * size;
    }
    return t;
  }
  lane_tile<C> tile(index_t b, index_t index) const { return tile(b, index * lanes<C>, count); }

 private:
  index_t batches_;
  index_t channels_;
  bool serves_;
};

/// Spreads numbers of classes over the lanes of their channels.
template <class C>
struct lane_spread {
  static constexpr index_t L = lanes<C>;
  index_t at[L] = {};    ///< where a lane's class lies
  index_t tile[L] = {};  ///< and in which class tile
  lane_runs<C> runs;

  /// Arrays of class tiles lie `step` elements apart; `first` is the class of element 0.
  [[gnu::noinline]] lane_spread(const lane_tile<C>& of, index_t size, index_t first, index_t step) {
    for (index_t l = 0; l < L; ++l) {
      const index_t c = of.c[l < of.count ? l : of.count - 1] / size - first;
      tile[l] = c / L;
      at[l] = tile[l] * step + c % L;
    }
    runs = lane_runs<C>(at);
  }
  vec<C> operator()(const C* p) const {
    if (runs.few()) return runs(p);
    C all[L];
    for (index_t l = 0; l < L; ++l) all[l] = p[at[l]];
    return load(all);
  }
};

/// keys[s * 2 L + lane] = exp(k) 2^-exponent, -0 where hidden; with `units` divided by that of the lane's first_key.
template <class C>
[[gnu::flatten]] inline void stage_head_group_keys(const problem& p, const lane_tile<C>& tile,
                                                   const stencil_table<C>& table, bool units, C* keys,
                                                   column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t block = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const lane_rows<C> field_k(p.k, p.grid, tile, p.d / p.hk);
  C k[block * L];
  vec<C> top(-inf), has_hidden(C(0));
  for (index_t s0 = 0; s0 < p.Tk; s0 += block) {
    const index_t s1 = min_of(s0 + block, p.Tk);
    field_k.read(s0, s1, k, -inf);
    hide_keys(p, tile, s0, s1, k);
    for (index_t s = s0; s < s1; ++s) {
      const vec<C> key = load(k + (s - s0) * L);
      top = max_ignoring_nan<C>(top, key);
      has_hidden = xsimd::select(key == vec<C>(-inf), vec<C>(C(1)), has_hidden);
      store(keys + s * 2 * L, key);
    }
  }
  set_key_scales<C>(top, table, cs);
  store(cs.has_hidden, has_hidden);
  const vec<C> one(C(1)), exponent = load(cs.exponent);
  store(cs.unit, units ? first_key<C>(keys, 2 * L, p.Tk).unit() : one);
  const vec<C> per_unit = one / load(cs.unit);
  for (index_t s = 0; s < p.Tk; ++s) {
    const vec<C> key = load(keys + s * 2 * L);
    store(keys + s * 2 * L, staged_weight<C>(key, exponent, per_unit));
  }
  find_first_keys<C>(keys, p.Tk, far_lanes<C>(), cs);
}

/// P[s * 2 L + lane] = weight * v, rows of v lying v_step apart, perhaps in P; and the scales of the tile's own lanes.
/// With scale 1 in one pass, false where another is needed.
template <bool Gaps, class C>
[[gnu::flatten]] inline bool stage_head_group_values(const problem& p, const lane_spread<C>& spread, const C* weights,
                                                     lane_scaling scaling, const C* v, index_t v_step, C* P,
                                                     column_scales<C>& cs) {
  constexpr index_t L = lanes<C>;
  const vec<C> zero(C(0)), one(C(1));
  const auto seen = [&](const vec<C>& weight) { return xsimd::copysign(one, weight) > zero; };
  if (scaling == lane_scaling::one) {
    magnitudes<C> sizes;
    for (index_t s = 0; s < p.Tk; ++s) {
      const vec<C> weight = spread(weights + s * 2 * L);
      vec<C> value = load(v + s * v_step);
      if constexpr (Gaps) value = xsimd::select(seen(weight), value, zero);
      sizes.add_any(value);
      store(P + s * 2 * L, weight * value);
    }
    return set_ordinary_values<C>(sizes, cs);
  }
  magnitudes<C> sizes;
  for (index_t s = 0; s < p.Tk; ++s) {
    const vec<C> value = load(v + s * v_step);
    sizes.add(value, Gaps ? seen(spread(weights + s * 2 * L)) : zero < one);
  }
  set_value_scales<C>(sizes, scaling, cs);
  const vec<C> by = load(cs.scale);
  for (index_t s = 0; s < p.Tk; ++s) {
    const vec<C> weight = spread(weights + s * 2 * L);
    const vec<C> product = weight * (load(v + s * v_step) * by);
    store(P + s * 2 * L, Gaps ? xsimd::select(seen(weight), product, zero) : product);
  }
  return true;
}

/// P[s * 2 L + lane] = exp(k) v of a tile's lanes, whose weights of keys `keys` holds by classes, and the tile's
/// scales. Rows of v lie v_step apart, perhaps in P. `of_head_groups` are the scales of the classes, `apart` between
/// one class tile's and the next one's; so are the weights, at the distance that `spread` was told. False where values
/// need another scale than 1, which was asked for; what P held is lost then.
template <class C>
[[gnu::noinline]] bool stage_values(const problem& p, const lane_spread<C>& spread,
                                    const column_scales<C>* of_head_groups, index_t apart, const C* keys,
                                    lane_scaling scaling, const C* v, index_t v_step, C* P, column_scales<C>& cs) {
  bool has_hidden = false;
  for (index_t l = 0; l < lanes<C>; ++l) {
    const column_scales<C>& of_head_group = of_head_groups[spread.tile[l] * apart];
    const index_t from = spread.at[l] % lanes<C>;
    cs.exponent[l] = of_head_group.exponent[from];
    cs.unit[l] = of_head_group.unit[from];
    cs.usable[l] = of_head_group.usable[from];
    cs.empty[l] = of_head_group.empty[from];
    cs.first[l] = of_head_group.first[from];
    has_hidden = has_hidden || of_head_group.has_hidden[from] != C(0);
  }
  return has_hidden ? stage_head_group_values<true>(p, spread, keys, scaling, v, v_step, P, cs)
                    : stage_head_group_values<false>(p, spread, keys, scaling, v, v_step, P, cs);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
