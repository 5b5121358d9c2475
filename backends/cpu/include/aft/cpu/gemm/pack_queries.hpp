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
  vec<C> top = vec<C>(-std::numeric_limits<C>::infinity());  ///< exponent of exp(-lse)
  vec<C> high = vec<C>(C(0));                                ///< |g|
  vec<C> average = high;                                     ///< |o|
  vec<C> beyond = high;                                      ///< 1: logits beyond exp_constants::range
};

/// What a lane tile's columns are multiplied by; NaN in `taint` makes them all NaN. 1 at first, which is right for rows
/// of ordinary size.
template <class C>
struct query_scale {
  C by[lanes<C>], exponent[lanes<C>], lift[lanes<C>], taint[lanes<C>];

  query_scale() {
    for (index_t l = 0; l < lanes<C>; ++l) {
      by[l] = lift[l] = C(1);
      exponent[l] = taint[l] = C(0);
    }
  }

  /// The scales that a range asks for, and in `cs` what undoes them. False: columns have to be formed again. Lane by
  /// lane, whatever the neighbours.
  [[gnu::noinline]] bool settle(const query_range<C>& range, column_scale<C>& cs) {
    bool as_formed = true;
    C tops[lanes<C>], largest[lanes<C>], averages[lanes<C>], beyond[lanes<C>];
    store(tops, range.top);
    store(largest, range.high);
    store(averages, range.average);
    store(beyond, range.beyond);
    for (index_t l = 0; l < lanes<C>; ++l) {
      cs.base[l] = cs.floor[l] = cs.exponent[l] = C(0);
      cs.inverse_scale[l] = cs.unit[l] = cs.lift[l] = cs.unlift[l] = C(1);
      // Sums of 2^30 such terms, times averages as large, stay in range; and what was dropped, below 2^-125, stays
      // below 2^-40 max |g| when key_epilogue multiplies it by up to 2^40.
      // A fraction, see exp_weight, does not count.
      const C top = std::floor(tops[l]), high = largest[l], average = averages[l];
      const bool seen = top > -std::numeric_limits<C>::infinity();
      const bool ordinary =
          (!seen || (top >= C(-24) && top <= C(24))) && (high == C(0) || (high >= C(0x1p-20) && high <= C(0x1p20)));
      if (!ordinary) {
        cs.exponent[l] = seen ? top : C(0);
        value_scale(high, by[l], cs.inverse_scale[l]);
      }
      // Averages near the bottom of the range are lifted, else v A - B would cancel between subnormal numbers.
      if (average > C(0) && average < C(0x1p-20)) value_scale(average, cs.lift[l], cs.unlift[l]);
      exponent[l] = cs.exponent[l];
      lift[l] = cs.lift[l];
      // Lanes with logits beyond exp_constants::range go to the exact sums.
      if (beyond[l] > C(0)) taint[l] = std::numeric_limits<C>::quiet_NaN();
      as_formed = as_formed && exponent[l] == C(0) && by[l] == C(1) && lift[l] == C(1) && taint[l] == C(0);
    }
    return as_formed;
  }
};

/// One row: its columns, and what it adds to the range. A row that sees no key has zeros.
template <class C>
class query_packer {
 public:
  query_packer(const query_scale<C>& scale, const query_range<C>& range)
      : by_(load(scale.by)),
        exponent_(load(scale.exponent)),
        lift_(load(scale.lift)),
        taint_(load(scale.taint)),
        range_(range) {}

  /// {e^-lse g, e^-lse g o}; `narrow`: rounded to bfloat16, the second formed from what the first became, so that
  /// their errors are the same in v A - B.
  template <bool narrow = false>
  [[gnu::always_inline]] vec_sum<C> form(const lane_state<C>& state, const vec<C>& upper, const vec<C>& average) {
    const vec<C> zero(C(0)), one(C(1)), inf(std::numeric_limits<C>::infinity()), none(-inf);
    const auto empty = state.inverse == zero;
    const vec<C> g = xsimd::select(empty, zero, state.inverse * upper);
    const vec<C> o = xsimd::select(empty, zero, average);
    vec_sum<C> column;
    column.num = times_pow2<C>(g * by_, -state.exponent - exponent_) + taint_;
    if constexpr (narrow) column.num = round_to_bf16(column.num);
    column.den = column.num * (o * lift_);
    if constexpr (narrow) column.den = round_to_bf16(column.den);
    const vec<C> g_size = (xsimd::abs)(g), o_size = (xsimd::abs)(o);
    range_.top = max_ignoring_nan<C>(range_.top, xsimd::select(empty, none, -state.exponent));
    range_.high = max_ignoring_nan<C>(range_.high, xsimd::select(g_size < inf, g_size, zero));
    range_.average = max_ignoring_nan<C>(range_.average, xsimd::select(o_size < inf, o_size, zero));
    range_.beyond = xsimd::select(differs<C>(state.base_hi, zero), one, range_.beyond);
    return column;
  }
  const query_range<C>& range() const { return range_; }

 private:
  vec<C> by_, exponent_, lift_, taint_;
  query_range<C> range_;
};

/// Columns of queries [t0, t1) of `count` lane tiles, each `size` numbers from the one before; `paired`: two queries a
/// step, as pairs of bfloat16; t0 is even then. `buffers` has room for staged_queries numbers of each tile.
template <class C>
[[gnu::flatten]] inline void form_queries(const gradient_inputs& in, const lane_tile<C>* tiles, index_t count,
                                          index_t t0, index_t t1, const query_scale<C>* scales, bool paired,
                                          index_t size, C* P, C* buffers, query_range<C>* ranges) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  const index_t T = in.p->Tq;
  const query_rows<C> up(in, tiles, count, t0, t1, buffers, query_chunk * count * L);
  for (index_t i = 0; i < count; ++i) {
    query_packer<C> packer(scales[i], ranges[i]);
    const auto soon = [&](index_t t) {
      return t + tuning<C>::prefetch_distance < T ? tuning<C>::prefetch_distance : 0;
    };
    if constexpr (has_bf16_dot<C>) {
      if (paired) {
        const auto column = [&](index_t t) __attribute__((always_inline)) {
          const index_t r = t - t0, ahead = soon(t);
          return packer.template form<true>(up.weights(r, i, ahead), up.g(r, i, ahead), up.o(r, i, ahead));
        };
        C* at = P + i * size + t0 / 2 * N;
        for (index_t t = t0; t < t1; t += 2, at += N) {
          const vec_sum<C> first = column(t), second = t + 1 < t1 ? column(t + 1) : zero_sum<C>();
          store_sum(at, vec_sum<C>{join_pairs(first.num, second.num), join_pairs(first.den, second.den)});
        }
        ranges[i] = packer.range();
        continue;
      }
    }
    for (index_t t = t0; t < t1; ++t) {
      const index_t r = t - t0, ahead = soon(t);
      store_sum(P + i * size + t * N, packer.form(up.weights(r, i, ahead), up.g(r, i, ahead), up.o(r, i, ahead)));
    }
    ranges[i] = packer.range();
  }
}

/// scales[i].exponent holds what exp(-lse) was divided by, inverse scale undoes the power of two that g was multiplied
/// by, unlift that of o. `count` lane tiles at once, like pack_keys, with scale 1; a tile that needs another is formed
/// again. `buffers` has room for staged_queries numbers of each.
template <class C, class Tiles>
inline void pack_queries(const gradient_inputs& in, index_t count, const Tiles& tile_at, bool paired, index_t size,
                         C* buffers, C* P, column_scale<C>* cs) {
  const index_t T = in.p->Tq;
  inplace_vector<lane_tile<C>, tuning<C>::wide_group> tiles(count);
  inplace_vector<query_range<C>, tuning<C>::wide_group> ranges(count);
  inplace_vector<query_scale<C>, tuning<C>::wide_group> scales(count);
  for (index_t i = 0; i < count; ++i) tiles[i] = tile_at(i);
  const auto form = [&](index_t i, index_t n) {
    for (index_t t0 = 0; t0 < T; t0 += query_chunk)
      form_queries<C>(in, tiles.data() + i, n, t0, min_of(t0 + query_chunk, T), scales.data() + i, paired, size,
                      P + i * size, buffers, ranges.data() + i);
  };
  form(0, count);
  for (index_t i = 0; i < count; ++i)
    if (!scales[i].settle(ranges[i], cs[i])) form(i, 1);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
