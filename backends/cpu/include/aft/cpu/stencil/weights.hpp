// SPDX-License-Identifier: Apache-2.0
/// @file stencil/weights.hpp  exp(filter), one table per lane tile with an entry for every lane.
#pragma once

#include <limits>

#include "../math/exp_weight.hpp"
#include "../runtime/workspace.hpp"
#include "shape.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Logarithms whose maximum lies beyond half of what exp_split takes go to the exact path: smaller ones may then be
/// cut at the full range, where they are far below the maximum.
template <class C>
inline constexpr C stencil_range = exp_constants<C>::range / 2;

/// A filter that has learned to look at one tap leaves rows at the border, which do not see it, far below the others in
/// units that they share. So where the largest weight is more than 2 to this power, it counts as that and not as 1:
/// sums may lie as much further down until they prove nothing. Above it there is room for ordinary keys and values,
/// e^32 and 2^20, and a million terms. What underflowed among keys or payloads would count for more, too: lanes where
/// something did have bounds that are higher by raised_bounds.
template <class C>
inline constexpr C sharp_units = sizeof(C) == 4 ? C(40) : C(400);
template <class C>
inline constexpr C raised_bounds = sizeof(C) == 4 ? C(0x1p41) : C(0x1p401);

/// The weights of the lanes of one tile, E[j] = exp(r[j]) 2^-exponent. Hidden taps (r = -inf) hold -0: nothing to a
/// sum, but a mark by which an underflowed weight is told from one that was never there.
template <class C>
struct stencil_table {
  C* logs = nullptr;     ///< r[j], [tap][lane]
  C* weights = nullptr;  ///< E[j]
  C* flipped = nullptr;  ///< E in reverse order of taps, for the transposed box; only for gradients
  C exponent[lanes<C>] = {};
  C outside[lanes<C>] = {};  ///< exp(0) 2^-exponent, 0 where pairs outside the box are excluded
  C usable[lanes<C>] = {};   ///< 0: the lane is left to the exact path
  C sharp[lanes<C>] = {};    ///< 1: the largest weight is 2^sharp_units, not 1
  C dropped[lanes<C>] = {};  ///< 1: some weight underflowed, where any lane is sharp
  bool any_sharp = false;
};

/// logs[j][lane] = the filter as the caller stores it: a field over the taps, whose channels are the heads.
template <class C>
inline void read_filter(const problem& p, const stencil_shape& shape, const lane_tile<C>& tile, C* logs) {
  field filter;
  filter.data = p.bias.r;
  for (std::size_t axis = 0; axis < 3; ++axis)
    filter.data += shape.skipped[axis] * p.bias.r_sj[axis] * size_of(p.bias.r_type);
  filter.type = p.bias.r_type;
  filter.set = true;
  filter.sx = p.bias.r_sj;
  filter.sc = p.bias.r_sh;
  lane_field<C>(filter, shape.taps, tile, p.d / p.bias.heads).read(0, shape.tap_count(), logs);
}

template <class C>
[[gnu::noinline]] void fill_table(const problem& p, const stencil_shape& shape, const lane_tile<C>& tile,
                                  stencil_table<C>& table) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const index_t taps = shape.tap_count();
  read_filter<C>(p, shape, tile, table.logs);
  // exp(0) of the outside weight is one of the terms that must not overflow.
  vec<C> top(p.excluded ? -inf : C(0));
  for (index_t j = 0; j < taps; ++j) top = max_ignoring_nan<C>(top, load(table.logs + j * L));
  const auto none = top == vec<C>(-inf);
  const auto usable = none || ((xsimd::abs)(top) <= vec<C>(stencil_range<C>));
  const vec<C> zero(C(0));
  const vec<C> highest = exponent_of<C>(xsimd::select(usable && !none, top, zero)), units(sharp_units<C>);
  const auto sharp = highest > units;
  const vec<C> exponent = xsimd::select(sharp, highest - units, highest);
  for (index_t j = 0; j < taps; ++j) {
    const vec<C> r = load(table.logs + j * L);
    const vec<C> e = xsimd::select(r == vec<C>(-inf), vec<C>(C(-0.0)), weight_scaled<C>(r, exponent));
    store(table.weights + j * L, e);
    if (table.flipped != nullptr) store(table.flipped + (taps - 1 - j) * L, e);
  }
  store(table.exponent, exponent);
  store(table.outside, p.excluded ? zero : weight_scaled<C>(zero, exponent));
  store(table.usable, xsimd::select(usable, vec<C>(C(1)), zero));
  table.any_sharp = xsimd::any(sharp);
  if (!table.any_sharp) return;
  const vec<C> one(C(1));
  vec<C> dropped =
      xsimd::select((load(table.outside) == zero) && (vec<C>(p.excluded ? C(1) : C(0)) == zero), one, zero);
  for (index_t j = 0; j < taps; ++j) {
    const auto lost = (load(table.weights + j * L) == zero) && !(load(table.logs + j * L) == vec<C>(-inf));
    dropped = xsimd::select(lost, one, dropped);
  }
  store(table.sharp, xsimd::select(sharp, one, zero));
  store(table.dropped, dropped);
}

/// Tables for a number of lane tiles.
template <class C>
inline stencil_table<C>* take_tables(const stencil_shape& shape, index_t tiles, bool gradients, scratch& memory) {
  stencil_table<C>* const tables = memory.take<stencil_table<C>>(tiles);
  const index_t size = shape.tap_count() * lanes<C>;
  C* logs = memory.take<C>(tiles * size * (gradients ? 3 : 2));
  for (index_t i = 0; tables != nullptr && i < tiles; ++i) {
    ::new (tables + i) stencil_table<C>{};
    tables[i].logs = logs;
    tables[i].weights = logs + size;
    tables[i].flipped = gradients ? logs + 2 * size : nullptr;
    logs += size * (gradients ? 3 : 2);
  }
  return tables;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
