// SPDX-License-Identifier: Apache-2.0
/// @file key_columns.hpp  Packs P[s] = [exp(k) v | exp(k)], the columns of the forward fold.
#pragma once

#include <limits>

#include "bf16_dot.hpp"
#include "pair_fold.hpp"
#include "stage.hpp"
#include "storage_vectors.hpp"
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

inline constexpr index_t column_chunk = 16;  // rows that are staged together: 48 KiB for the widest group

/// P[s - s0] = [v, k] for keys [s0, s1) of `count` lane tiles, `apart` keys from one tile to the next; hidden keys and
/// idle lanes -inf.
///
/// A lane tile is one cache line a row, which the hardware foresees badly. So a row is read for all tiles of the group,
/// which lie side by side, the rows to come are asked for, and each row is read from memory once.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void stage_keys(const problem& p, index_t count, const lane_tile<C>* tiles,
                                                       index_t s0, index_t s1, C* P, index_t apart) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const index_t group = p.d / p.hk;
  const lane_field<C> k0(p.k, p.grid, tiles[0], group), v0(p.v, p.grid, tiles[0], 1);
  const lane_field<C> k1(p.k, p.grid, tiles[count - 1], group), v1(p.v, p.grid, tiles[count - 1], 1);
  const index_t width = (count - 1) * L;
  const bool plain = p.k.type == p.v.type && k0.whole_rows() && v0.whole_rows() && k1.whole_rows() && v1.whole_rows() &&
                     k1.base - k0.base == width && v1.base - v0.base == width;
  const auto read_rows = [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    constexpr index_t ahead = tuning<C>::rows_ahead;
    const index_t k_step = p.k.sx[2], v_step = p.v.sx[2];
    const T* k = reinterpret_cast<const T*>(p.k.data) + k0.base + s0 * k_step;
    const T* v = reinterpret_cast<const T*>(p.v.data) + v0.base + s0 * v_step;
    C* out = P;
    for (index_t s = s0; s < s1; ++s, k += k_step, v += v_step, out += N) {
      const index_t soon = s + ahead < p.Tk ? ahead : 0;
      for (index_t i = 0; i < count; ++i) {
        __builtin_prefetch(k + soon * k_step + i * L);
        __builtin_prefetch(v + soon * v_step + i * L);
        C* const at = out + i * apart * N;
        store(at, load_as<C>(v + i * L));
        store(at + L, load_as<C>(k + i * L));
      }
    }
  };
  if (plain && p.k.type == dtype_of<C>) {
    read_rows(static_cast<const C*>(nullptr));
  } else if (plain && p.k.type == dtype::bf16) {
    read_rows(static_cast<const bfloat16*>(nullptr));
  } else {
    C rows[column_chunk * L];
    for (index_t i = 0; i < count; ++i) {
      C* const at = P + i * apart * N;
      lane_field<C>(p.v, p.grid, tiles[i], 1).read(s0, s1, rows);
      for (index_t s = 0; s < s1 - s0; ++s) store(at + s * N, load(rows + s * L));
      lane_field<C>(p.k, p.grid, tiles[i], group).read(s0, s1, rows, -inf);
      for (index_t s = 0; s < s1 - s0; ++s) store(at + s * N + L, load(rows + s * L));
    }
  }
  for (index_t i = 0; i < count; ++i) hide_keys(p, tiles[i], s0, s1, P + i * apart * N + L, N);
}

/// Adds `count` staged keys to a lane tile's range.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void scan_keys(const C* P, index_t count, key_range<C>& range) {
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

/// The scales of a lane tile from its range. Keys and values of ordinary size keep scale 1: powers of two do not
/// change the bits of a sum, and so most tiles are packed in one pass. Decided lane by lane, whatever the neighbours.
template <class C>
inline column_scale<C> key_scale(const key_range<C>& range, C* value_scales) {
  using k_ = exp_constants<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  column_scale<C> cs;
  C small[lanes<C>];
  for (index_t l = 0; l < lanes<C>; ++l) {
    const C top = range.key_top[l];
    const bool none = top == -inf;
    const bool beyond = !none && (top > k_::range || top < k_::lowest);
    // Sums of 2^30 such terms stay far from the ends of the range, and den may still fall by 2^48 before it proves
    // nothing.
    const bool ordinary = none || (top >= C(-8) && top <= C(32));
    cs.base[l] = beyond ? top : C(0);
    small[l] = ordinary || beyond ? C(0) : top;
    const C high = range.value_top[l];
    value_scales[l] = cs.unscale[l] = C(1);
    if (!(high >= C(0x1p-20) && high <= C(0x1p20))) value_scale(high, value_scales[l], cs.unscale[l]);
    // Values all of one size (or 0) are summed safely; where some are far smaller a row may see only those.
    cs.floor[l] = range.value_low[l] * value_scales[l] < k_::value_floor ? k_::value_floor : C(0);
  }
  store(cs.exponent, exponent_of<C>(load(small)));
  return cs;
}

/// What staged keys are turned into, and what they were.
template <class C>
struct key_former {
  vec<C> base, exponent, by;
  vec<C> top, high, low;

  explicit key_former(const key_range<C>& range, const vec<C>& key_base = vec<C>(C(0)),
                      const vec<C>& key_exponent = vec<C>(C(0)), const vec<C>& value_scale = vec<C>(C(1)))
      : base(key_base),
        exponent(key_exponent),
        by(value_scale),
        top(load(range.key_top)),
        high(load(range.value_top)),
        low(load(range.value_low)) {}

  /// num = exp(k - scale) v and den = exp(k - scale); both exactly 0 for a hidden key, whatever its v holds. `narrow`
  /// rounds den to bfloat16, and num is formed from what it became: their errors cancel in num / den. `measured` adds
  /// the key to the range.
  template <bool narrow, bool measured = true>
  void form(const vec<C>& value, const vec<C>& key, vec<C>& num, vec<C>& den) {
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
    const auto seen = differs<C>(key, hidden);
    den = xsimd::select(seen, exp_scaled<C>(key - base, exponent), zero);
    if constexpr (narrow) den = round_to_bf16(den);
    num = xsimd::select(seen, den * (value * by), zero);
    if constexpr (narrow) num = round_to_bf16(num);
    if constexpr (measured) {
      const vec<C> size = xsimd::select(seen, xsimd::abs(value), zero);
      top = max_ignoring_nan<C>(top, key);
      high = max_ignoring_nan<C>(high, size);
      low = xsimd::select(size > zero, min_ignoring_nan<C>(low, size), low);
    }
  }

  /// An infinite value counts as the largest.
  void leave(key_range<C>& range) const {
    store(range.key_top, top);
    store(range.value_top, high);
    store(range.value_low, low);
  }
};

/// Keys [s0, s0 + count) of one lane tile from their staged form into its packed columns P. `paired`: two keys a step,
/// as pairs of bfloat16; s0 is even then.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void form_keys(const C* staged, index_t s0, index_t count, bool paired, C* P,
                                                      key_former<C> former, key_range<C>& range) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  if constexpr (has_bf16_dot<C>) {
    if (paired) {
      C* at = P + s0 / 2 * N;
      for (index_t s = 0; s < count; s += 2, at += N) {
        vec<C> num0, den0, num1(C(0)), den1(C(0));
        const C* const one = staged + s * N;
        former.template form<true>(load(one), load(one + L), num0, den0);
        if (s + 1 < count) former.template form<true>(load(one + N), load(one + N + L), num1, den1);
        store(at, join_pairs(num0, num1));
        store(at + L, join_pairs(den0, den1));
      }
      former.leave(range);
      return;
    }
  }
  C* at = P + s0 * N;
  for (index_t s = 0; s < count; ++s, at += N) {
    vec<C> num, den;
    former.template form<false>(load(staged + s * N), load(staged + s * N + L), num, den);
    store(at, num);
    store(at + L, den);
  }
  former.leave(range);
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
  constexpr index_t N = tuning<C>::columns;
  lane_tile<C> tiles[tuning<C>::wide_group];
  key_range<C> ranges[tuning<C>::wide_group];
  C staged[tuning<C>::wide_group * column_chunk * N];
  for (index_t i = 0; i < count; ++i) tiles[i] = tile_at(i);
  const auto chunk_at = [&](index_t s0) { return s0 + column_chunk < p.Tk ? column_chunk : p.Tk - s0; };
  for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
    stage_keys<C>(p, count, tiles, s0, s0 + chunk_at(s0), staged, column_chunk);
    for (index_t i = 0; i < count; ++i) {
      form_keys<C>(staged + i * column_chunk * N, s0, chunk_at(s0), paired, P + i * size, key_former<C>(ranges[i]),
                   ranges[i]);
    }
  }
  for (index_t i = 0; i < count; ++i) {
    C value_scales[L];
    cs[i] = key_scale<C>(ranges[i], value_scales);
    const vec<C> zero(C(0));
    if (xsimd::all((load(cs[i].base) == zero) && (load(cs[i].exponent) == zero) &&
                   (load(value_scales) == vec<C>(C(1)))))
      continue;
    ranges[i] = key_range<C>();
    for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
      stage_keys<C>(p, 1, tiles + i, s0, s0 + chunk_at(s0), staged, column_chunk);
      scan_keys<C>(staged, chunk_at(s0), ranges[i]);
    }
    cs[i] = key_scale<C>(ranges[i], value_scales);
    key_range<C> known;
    const key_former<C> former(known, load(cs[i].base), load(cs[i].exponent), load(value_scales));
    for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
      stage_keys<C>(p, 1, tiles + i, s0, s0 + chunk_at(s0), staged, column_chunk);
      form_keys<C>(staged, s0, chunk_at(s0), paired, P + i * size, former, known);
    }
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
