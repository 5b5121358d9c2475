// SPDX-License-Identifier: Apache-2.0
/// @file stencil/backward/grouped_sums.hpp  What the gradients of channel classes are summed in.
#pragma once

#include <cmath>

#include "../grouped/groups.hpp"
#include "../worker.hpp"
#include "filter_gradient.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Lane tiles [first, last), whose channels are those of classes [head_group_first, head_group_last).
struct grouped_segment {
  index_t first = 0, last = 0;
  index_t head_group_first = 0, head_group_last = 0;
  index_t width = 1;  ///< classes of a class tile

  index_t head_group_tiles() const { return ceil_div(head_group_last - head_group_first, width); }
};

/// Adds lanes up by classes, in the order of channels.
template <class C>
class head_group_sums {
 public:
  /// Sums of class tiles lie `step` elements apart; `first` is the class of element 0.
  [[gnu::noinline]] head_group_sums(const lane_tile<C>& tile, index_t size, index_t first, index_t step) {
    for (index_t l = 0; l < tile.count; ++l) {
      const index_t c = tile.c[l] / size - first;
      const index_t at = c / lanes<C> * step + c % lanes<C>;
      if (l == 0 || at != at_[runs_ - 1]) at_[runs_++] = at;
      end_[runs_ - 1] = l + 1;
    }
  }
  [[gnu::always_inline]] void add(const vec<C>& x, C* to) const {
    C all[lanes<C>];
    store(all, x);
    index_t l = 0;
    for (index_t i = 0; i < runs_; ++i) {
      C sum = to[at_[i]];
      for (; l < end_[i]; ++l) sum += all[l];
      to[at_[i]] = sum;
    }
  }

 private:
  index_t runs_ = 0;
  index_t at_[lanes<C>] = {};
  index_t end_[lanes<C>] = {};
};

/// Of the classes of one class tile and one batch element.
template <class C>
struct head_group_state {
  C unit[lanes<C>];     ///< exponent of the power of two that sums are divided by; -inf where nothing was added
  C payload[lanes<C>];  ///< that of X
  C usable[lanes<C>];   ///< 0: the class is left to the exact path
  C lost[lanes<C>];     ///< the most of its lanes' payload_scales::lost
  C lowered[lanes<C>];  ///< 1: sums were brought further down than payload_losses leaves room for

  void clear() {
    for (index_t l = 0; l < lanes<C>; ++l) {
      lost[l] = C(1);
      unit[l] = -std::numeric_limits<C>::infinity();
      payload[l] = usable[l] = lowered[l] = C(0);
    }
  }
  vec_mask<C> all_zero() const { return load(unit) == vec<C>(-std::numeric_limits<C>::infinity()); }
  /// The unit as a product of two, since it may lie beyond the type.
  vec<C> low_unit() const { return pow2<C>(half()); }
  vec<C> high_unit() const { return pow2<C>(xsimd::select(all_zero(), vec<C>(C(0)), load(unit)) - half()); }

 private:
  vec<C> half() const {
    const vec<C> magic(exp_constants<C>::magic);
    return (xsimd::select(all_zero(), vec<C>(C(0)), load(unit)) * vec<C>(C(0.5)) + magic) - magic;
  }
};

/// Buffers of one thread. Two vectors, of two batch elements, for every position or tap of every class tile.
template <class C>
struct grouped_sums {
  static constexpr index_t L = lanes<C>;
  index_t step = 0, tap_step = 0;  ///< between class tiles
  index_t tiles = 0;               ///< class tiles
  C* keys = nullptr;               ///< exp(k) 2^-exponent, -0 where hidden
  C* products = nullptr;           ///< X sum_c g_c o_c
  C* dk = nullptr;                 ///< sum_c v_c A_c, then dk
  C* open = nullptr;               ///< 1: dk is to be formed by the exact path
  C* taps = nullptr;               ///< sum of X g e^k v at the taps, then dr
  C* sizes = nullptr;              ///< the same of absolute values, tile by tile
  C* open_taps = nullptr;
  column_scales<C>* scales = nullptr;     ///< [class tile][batch element]
  head_group_state<C>* states = nullptr;  ///< the same
  C* P = nullptr;                         ///< of one lane tile: exp(k) v
  C* Q = nullptr;                         ///< X g
  C* rest = nullptr;
  query_block<C>* block = nullptr;
  incoming_rows<C> rows[2];

  void take(const stencil_shape& shape, index_t head_group_tiles, scratch& memory) {
    tiles = head_group_tiles;
    step = shape.positions() * 2 * L;
    tap_step = shape.tap_count() * 2 * L;
    for (C** const at : {&keys, &products, &dk, &open}) *at = memory.take<C>(tiles * step);
    for (C** const at : {&taps, &sizes, &open_taps}) *at = memory.take<C>(tiles * tap_step);
    scales = memory.take<column_scales<C>>(tiles * 2);
    states = memory.take<head_group_state<C>>(tiles * 2);
    P = memory.take<C>(step);
    Q = memory.take<C>(step);
    rest = memory.take<C>(box_complement<C>::scratch_size(shape));
    block = memory.take<query_block<C>>(1);
    for (incoming_rows<C>& r : rows) r.take(shape.positions(), memory);
  }

  [[gnu::noinline]] void begin(index_t n) const {
    const auto clear = [](C* at, index_t size) {
      for (index_t i = 0; i < size; i += L) store(at + i, vec<C>(C(0)));
    };
    for (C* const at : {products, dk, open}) clear(at, tiles * step);
    for (C* const at : {taps, sizes, open_taps}) clear(at, tiles * tap_step);
    for (index_t i = 0; i < tiles * 2; ++i) states[i].clear();
    if (n == 2) return;
    clear(keys, tiles * step);
    clear(P, step);
    clear(Q, step);
  }

  /// Brings the sums of a lane tile's classes to the unit of the largest lane; share[l] is a lane's unit in it.
  /// Where all g or all v are 0 nothing is added, and no unit is needed.
  [[gnu::noinline]] void join_units(const lane_spread<C>& spread, index_t x, const lane_tile<C>& tile,
                                    const column_scales<C>& cs, const payload_scales<C>& ps, C* share) const {
    constexpr C none = -std::numeric_limits<C>::infinity();
    C units[L], of_head_group[L];
    for (index_t l = 0; l < L; ++l) {
      units[l] = of_head_group[l] = C(0);
      if (l >= tile.count) continue;
      head_group_state<C>& state = states[2 * spread.tile[l] + x];
      const index_t of = spread.at[l] % L;
      state.payload[of] = ps.exponent[l];
      state.usable[of] = ps.usable[l];
      if (ps.all_zero[l] != C(0)) continue;
      units[l] = scale_exponent(ps.inverse_scale[l]) + scale_exponent(cs.inverse_scale[l]);
      if (units[l] <= state.unit[of]) continue;
      if (state.unit[of] > none) {
        const C down = state.unit[of] - units[l];
        if (down < C(-20)) state.lowered[of] = C(1);
        lower(spread.tile[l], of + x * L, static_cast<int>(down));
      }
      state.unit[of] = units[l];
    }
    for (index_t l = 0; l < tile.count; ++l)
      if (ps.all_zero[l] == C(0)) of_head_group[l] = states[2 * spread.tile[l] + x].unit[spread.at[l] % L];
    store(share, raise<C>(vec<C>(C(1)), load(units) - load(of_head_group)));
  }

  /// After the payload of a lane tile whose table is sharp.
  void join_losses(const lane_spread<C>& spread, index_t x, const lane_tile<C>& tile, const stencil_table<C>& table,
                   const payload_scales<C>& ps) const {
    for (index_t l = 0; l < tile.count; ++l) {
      if (table.sharp[l] == C(0)) continue;
      head_group_state<C>& state = states[2 * spread.tile[l] + x];
      const index_t of = spread.at[l] % L;
      if (ps.lost[l] != C(1) || state.lowered[of] != C(0)) state.lost[of] = raised_bounds<C>;
    }
  }

  /// Keeps a result where it is proven, opens it for the exact path where not; true if any of `count` is opened.
  [[gnu::noinline]] bool settle(C* to, C* opened, const vec<C>& x, const vec_mask<C>& hidden, const vec_mask<C>& proven,
                                index_t count) const {
    const vec<C> zero(C(0));
    store(to, xsimd::select(proven && !hidden, x, zero));
    if (xsimd::all(proven)) return false;
    store(opened, xsimd::select(proven, zero, vec<C>(C(1))));
    bool any = false;
    for (index_t l = 0; l < L; ++l) {
      if (l >= count) opened[l] = C(0);
      any = any || opened[l] != C(0);
    }
    return any;
  }

 private:
  void lower(index_t tile, index_t lane, int exponent) const {
    const C by = std::ldexp(C(1), exponent);
    for (C* const at : {products, dk})
      for (index_t i = tile * step; i < (tile + 1) * step; i += 2 * L) at[i + lane] *= by;
    for (C* const at : {taps, sizes})
      for (index_t i = tile * tap_step; i < (tile + 1) * tap_step; i += 2 * L) at[i + lane] *= by;
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
