// SPDX-License-Identifier: Apache-2.0
/// @file gemm/pack_keys.hpp  Packs P[s] = [exp(k) v | exp(k)], the columns of the forward fold.
#pragma once

#include <limits>

#include "../math/exp_weight.hpp"
#include "../math/power_of_two.hpp"
#include "../runtime/inplace_vector.hpp"
#include "../simd/bf16_dot.hpp"
#include "../simd/conversions.hpp"
#include "../softmax/far_lanes.hpp"
#include "../softmax/first_key.hpp"
#include "../softmax/key_range.hpp"
#include "../tensor/visible_keys.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

inline constexpr index_t column_chunk = 16;  // rows that are formed together: 48 KiB of floats for the widest group

/// Rows of k and v that can be used where they lie: of one type, whole vectors, and those of a group of lane tiles side
/// by side.
template <class C>
class key_rows {
 public:
  static constexpr index_t L = lanes<C>;

  key_rows(const problem& p, index_t count, const lane_tile<C>* tiles) : type_(p.k.type), end_(p.Tk) {
    const bool known = p.Tk > 0 && (type_ == dtype_of<C> || (std::is_same_v<C, float> && type_ == dtype::bf16));
    in_place_ = known && p.v.type == type_ && place(p.k, p.grid, count, tiles, p.d / p.hk, k_, k_step_) &&
                place(p.v, p.grid, count, tiles, 1, v_, v_step_);
  }
  bool in_place() const { return in_place_; }

  /// f(v, k) with the rows s of tile i, and how far it is to the next ones.
  template <class F>
  void visit(index_t i, index_t s, const F& f) const {
    if constexpr (std::is_same_v<C, float>) {
      if (type_ == dtype::bf16)
        return f(at<bfloat16>(v_, v_step_, i, s), v_step_, at<bfloat16>(k_, k_step_, i, s), k_step_);
    }
    f(at<C>(v_, v_step_, i, s), v_step_, at<C>(k_, k_step_, i, s), k_step_);
  }

  /// Asks for rows [s0, s1) of tile i, each line of them once: a lane tile is a line a row or less, which the hardware
  /// foresees badly.
  [[gnu::always_inline]] void prefetch_into(index_t i, index_t s0, index_t s1) const {
    const index_t size = size_of(type_);
    if (i * L * size % 64 != 0) return;
    const std::byte *k = k_ + (i * L + s0 * k_step_) * size, *v = v_ + (i * L + s0 * v_step_) * size;
    for (index_t s = s0; s < s1 && s < end_; ++s, k += k_step_ * size, v += v_step_ * size) {
      AFT_PREFETCH(k);
      AFT_PREFETCH(v);
    }
  }

 private:
  template <class T>
  const T* at(const std::byte* p, index_t step, index_t i, index_t s) const {
    return reinterpret_cast<const T*>(p) + i * L + s * step;
  }
  static bool place(const field& f, const std::array<index_t, 3>& grid, index_t count, const lane_tile<C>* tiles,
                    index_t group, const std::byte*& p, index_t& step) {
    p = f.data + lane_field<C>(f, grid, tiles[0], group).base * size_of(f.type);
    step = f.sx[2];
    return lie_side_by_side<C>(f, grid, tiles, count, group);
  }

  dtype type_;
  index_t end_;
  bool in_place_ = false;
  const std::byte *k_ = nullptr, *v_ = nullptr;
  index_t k_step_ = 0, v_step_ = 0;
};

/// P[s - s0] = [v, k] for keys [s0, s1) of a lane tile; hidden keys and idle lanes -inf.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void stage_keys(const problem& p, const lane_tile<C>& tile, index_t s0,
                                                       index_t s1, C* P) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  constexpr C inf = std::numeric_limits<C>::infinity();
  C rows[column_chunk * L];
  lane_field<C>(p.v, p.grid, tile, 1).read(s0, s1, rows);
  for (index_t s = 0; s < s1 - s0; ++s) store(P + s * N, load(rows + s * L));
  lane_field<C>(p.k, p.grid, tile, p.d / p.hk).read(s0, s1, rows, -inf);
  for (index_t s = 0; s < s1 - s0; ++s) store(P + s * N + L, load(rows + s * L));
  hide_keys(p, tile, s0, s1, P + L, N);
}

/// Adds `count` staged keys to a lane tile's range.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void scan_keys(const C* P, index_t count, key_range<C>& range) {
  key_range<C> all = range;
  for (index_t s = 0; s < count; ++s) all.add(load(P + s * tuning<C>::NR + lanes<C>), load(P + s * tuning<C>::NR));
  range = all;
}

/// Whether they are all 1.
template <class C>
inline bool ordinary_scales(const column_scale<C>& cs) {
  const vec<C> zero(C(0));
  return xsimd::all((load(cs.base) == zero) && (load(cs.exponent) == zero) && (load(cs.inverse_scale) == vec<C>(C(1))));
}

/// The scales of a lane tile from its range. Keys and values of ordinary size keep scale 1, and so most tiles are
/// packed in one pass. Decided lane by lane, whatever the neighbours.
template <class C>
inline column_scale<C> key_scale(const key_range<C>& range, const first_key<C>& first, C* value_scales) {
  using k_ = exp_constants<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  column_scale<C> cs;
  C least[lanes<C>], tops[lanes<C>], largest[lanes<C>], lows[lanes<C>];
  store(tops, range.top);
  store(largest, range.values.high);
  store(lows, range.values.low);
  for (index_t l = 0; l < lanes<C>; ++l) {
    const C top = tops[l];
    const bool none = top == -inf;
    const bool beyond = !none && (top > k_::range || top < k_::lowest);
    const bool usual = none || (top >= ordinary<C>::key_low && top <= ordinary<C>::key_high);
    cs.base[l] = beyond ? top : C(0);
    least[l] = usual || beyond ? C(0) : top;
    const C high = largest[l];
    value_scales[l] = cs.inverse_scale[l] = C(1);
    if (!(high >= ordinary<C>::value_low && high <= ordinary<C>::value_high))
      value_scale(high, value_scales[l], cs.inverse_scale[l]);
    // Values all of one size (or 0) are summed safely; where some are far smaller a row may see only those.
    cs.floor[l] = lows[l] * value_scales[l] < k_::value_floor ? k_::value_floor : C(0);
  }
  store(cs.exponent, exponent_of<C>(load(least)));
  store(cs.unit, first.unit(load(cs.base)));
  return cs;
}

/// What staged keys are turned into, and what they were.
template <class C>
struct key_packer {
  key_range<C> range{};  ///< an infinite value counts as the largest
  vec<C> base = vec<C>(C(0)), exponent = base, by = vec<C>(C(1)), per_unit = by;

  /// What begins with scale 1.
  static key_packer of_ordinary(const key_range<C>& range, const first_key<C>& first) {
    key_packer packer{range};
    packer.per_unit = packer.by / first.unit();
    return packer;
  }
  /// What nobody measures any more.
  static key_packer with(const column_scale<C>& cs, const vec<C>& by) {
    return {{}, load(cs.base), load(cs.exponent), by, vec<C>(C(1)) / load(cs.unit)};
  }

  /// num = exp(k - scale) v and den = exp(k - scale); both exactly 0 for a hidden key, whatever its v holds. `narrow`
  /// rounds den to bfloat16, as which keys and values are stored, and num is formed from what it became: their errors
  /// cancel in num / den. `measured` adds the key to the range. `plain`: the scales are 1, with the same bits.
  template <bool as_bf16, bool measured = true, bool plain = false>
  void form(const vec<C>& value, const vec<C>& key, vec<C>& num, vec<C>& den) {
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
    const auto seen = differs<C>(key, hidden);
    if constexpr (plain) {
      den = weight_scaled<C>(key, zero);
    } else {
      den = weight_scaled<C>(key - base, exponent);
    }
    // Of weights with 8 digits sums round little, and these are what keys are stored in.
    if constexpr (as_bf16) {
      den = round_made_of_bf16(den);
    } else {
      den = den * per_unit;
    }
    num = xsimd::select(seen, den * (plain ? value : value * by), zero);
    if constexpr (as_bf16) num = round_made_of_bf16(num);
    if constexpr (measured) {
      range.top = max_ignoring_nan<C>(range.top, key);
      add_sizes<C>(seen, value, range.values.high, range.values.low);
    }
  }
};

/// Forms the column of the keys of other ranks by scales that know of them.
template <class C>
inline void form_more(const far_lanes<C>& afar, const C* value_scales, column_scale<C>& cs) {
  if (!afar.any) return;
  auto packer = key_packer<C>::with(cs, load(value_scales));
  vec_sum<C> one = zero_sum<C>();
  packer.template form<false, false>(afar.value, afar.key, one.num, one.den);
  store_sum(cs.more, afar.times(one));
}

/// Keys [s0, s0 + count) of one lane tile, from rows of v and k that lie so far apart, into its packed columns P.
/// `paired`: two keys a step, as pairs of bfloat16; s0 is even then. Rows `ahead` of each are asked for.
template <class C, class T, bool plain, bool measured = true>
[[gnu::noinline, gnu::flatten]] inline void form_keys(const T* v, index_t v_step, const T* k, index_t k_step,
                                                      index_t s0, index_t count, index_t ahead, bool paired, C* P,
                                                      key_packer<C> packer, key_range<C>& range) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  // All at once and array by array: between the loads of the loop below they would come too late.
  for (index_t s = 0; s < count; ++s) AFT_PREFETCH(k + (s + ahead) * k_step, 0, 2);
  for (index_t s = 0; s < count; ++s) AFT_PREFETCH(v + (s + ahead) * v_step, 0, 2);
  if constexpr (has_bf16_dot<C>) {
    if (paired) {
      C* at = P + s0 / 2 * N;
      for (index_t s = 0; s < count; s += 2, at += N, v += 2 * v_step, k += 2 * k_step) {
        vec<C> num0, den0, num1(C(0)), den1(C(0));
        packer.template form<true, measured, plain>(load_as<C>(v), load_as<C>(k), num0, den0);
        if (s + 1 < count) {
          packer.template form<true, measured, plain>(load_as<C>(v + v_step), load_as<C>(k + k_step), num1, den1);
        }
        store(at, join_pairs(num0, num1));
        store(at + L, join_pairs(den0, den1));
      }
      if constexpr (measured) range = packer.range;
      return;
    }
  }
  C* at = P + s0 * N;
  for (index_t s = 0; s < count; ++s, at += N, v += v_step, k += k_step) {
    vec<C> num, den, key = load_as<C>(k), value = load_as<C>(v);
    keep_in_register<C>(key);
    keep_in_register<C>(value);
    packer.template form<false, measured, plain>(value, key, num, den);
    store(at, num);
    store(at + L, den);
  }
  if constexpr (measured) range = packer.range;
}

/// The first key of tile i of some that lie in rows.
template <class C>
inline first_key<C> first_of(const problem& p, const key_rows<C>& rows, index_t i, const lane_tile<C>& tile) {
  first_key<C> first;
  rows.visit(i, 0, [&]<class T>(const T*, index_t, const T* k, index_t) { first = first_key<C>::at(k, p, tile); });
  return first;
}

/// The scales of a lane tile whose range is known, and the column of the keys of other ranks by them.
template <class C>
AFT_COMPILE_ONCE inline void settle_scales(const key_range<C>& range, const first_key<C>& first,
                                           const far_lanes<C>& afar, C* value_scales, column_scale<C>& cs) {
  cs = key_scale<C>(range, first, value_scales);
  form_more(afar, value_scales, cs);
}

/// Packs the columns of `count` lane tiles, each `size` elements from the one before: P[s][0] = exp(k - scale) v and
/// P[s][1] = exp(k - scale). The tiles lie side by side in memory, so a row of k is fetched once.
///
/// Formed with scale 1 from a chunk of keys in the first-level cache; a tile with keys or values of another size is
/// read twice more.
template <class C, class Tiles>
[[gnu::flatten]] inline void pack_keys(const problem& p, index_t count, const Tiles& tile_at, bool paired, index_t size,
                                       C* P, column_scale<C>* cs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  inplace_vector<lane_tile<C>, tuning<C>::wide_group> tiles(count);
  inplace_vector<key_range<C>, tuning<C>::wide_group> ranges(count);
  inplace_vector<first_key<C>, tuning<C>::wide_group> first(count);
  C staged[column_chunk * N];
  for (index_t i = 0; i < count; ++i) {
    tiles[i] = tile_at(i);
    far_lanes<C>(p, tiles[i]).measure(ranges[i]);
  }
  const key_rows<C> rows(p, count, tiles.data());
  const bool in_place = rows.in_place() && !hides_keys(p);
  for (index_t i = 0; i < count && in_place && !paired; ++i) first[i] = first_of<C>(p, rows, i, tiles[i]);
  const auto chunk_at = [&](index_t s0) { return s0 + column_chunk < p.Tk ? column_chunk : p.Tk - s0; };
  const auto stage = [&](index_t i, index_t s0) { stage_keys<C>(p, tiles[i], s0, s0 + chunk_at(s0), staged); };
  const auto form_staged = [&](index_t i, index_t s0, const key_packer<C>& packer, key_range<C>& range) {
    form_keys<C, C, false>(staged, N, staged + L, N, s0, chunk_at(s0), 0, paired, P + i * size, packer, range);
  };
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
    for (index_t i = 0; i < count; ++i) {
      if (!in_place) {
        if (rows.in_place()) rows.prefetch_into(i, s0 + column_chunk, s0 + 2 * column_chunk);
        stage(i, s0);
        if (s0 == 0 && !paired) first[i] = first_key<C>::at(staged + L, p, tiles[i]);
        form_staged(i, s0, key_packer<C>::of_ordinary(ranges[i], first[i]), ranges[i]);
        continue;
      }
      const index_t ahead = s0 + 2 * column_chunk <= p.Tk ? column_chunk : 0;
      rows.visit(i, s0, [&]<class T>(const T* v, index_t v_step, const T* k, index_t k_step) {
        form_keys<C, T, true>(v, v_step, k, k_step, s0, chunk_at(s0), ahead, paired, P + i * size,
                              key_packer<C>::of_ordinary(ranges[i], first[i]), ranges[i]);
      });
    }
  }
  for (index_t i = 0; i < count; ++i) {
    C value_scales[L];
    const far_lanes<C> afar(p, tiles[i]);
    settle_scales(ranges[i], first[i], afar, value_scales, cs[i]);
    if (ordinary_scales(cs[i])) continue;
    ranges[i] = key_range<C>();
    afar.measure(ranges[i]);
    for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
      stage(i, s0);
      scan_keys<C>(staged, chunk_at(s0), ranges[i]);
    }
    settle_scales(ranges[i], first[i], afar, value_scales, cs[i]);
    key_range<C> known;
    const auto packer = key_packer<C>::with(cs[i], load(value_scales));
    for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
      stage(i, s0);
      form_staged(i, s0, packer, known);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
