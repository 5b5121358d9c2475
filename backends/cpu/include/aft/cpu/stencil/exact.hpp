// SPDX-License-Identifier: Apache-2.0
/// @file stencil/exact.hpp  One row of a convolution by the definition: the joint maximum over the keys it sees.
///
/// Taken for the lanes whose fast result is not proven. Weights keep their exponents apart and are added in the order
/// of the fast causal fold (taps, then the sum before them by groups), so within exp_constants::range a causal row has
/// the same bits on either path, and a future key that sends it here changes nothing.
#pragma once

#include "../softmax/exact_row.hpp"
#include "../tensor/visible_keys.hpp"
#include "complement.hpp"
#include "pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Calls f(i0, i1, tap) for runs of consecutive inputs that output t may read: first those under the box, in the
/// order of taps, where `tap` belongs to i0; then the rest, with tap = -1.
template <class F>
inline void for_each_run(const stencil_shape& s, index_t t, const F& f) {
  const index_t width = s.width();
  const index_t x2 = t % width;
  const index_t x1 = t / width % s.grid[1];
  const index_t x0 = t / width / s.grid[1];
  const auto planes = s.reach(0, x0);
  const auto rows = s.reach(1, x1);
  const auto box = s.reach(2, x2);
  const auto line = [&](index_t y0, index_t y1) { return (y0 * s.grid[1] + y1) * width; };
  if (box.lo < box.hi) {
    for (index_t y0 = planes.lo; y0 < planes.hi; ++y0)
      for (index_t y1 = rows.lo; y1 < rows.hi; ++y1) {
        const index_t j0 = y0 - x0 + s.left[0];
        const index_t j1 = y1 - x1 + s.left[1];
        const index_t tap = (j0 * s.taps[1] + j1) * s.taps[2] + box.lo - x2 + s.left[2];
        f(line(y0, y1) + box.lo, line(y0, y1) + box.hi, tap);
      }
  }
  if (!s.complement()) return;
  for (index_t y0 = 0; y0 < s.grid[0]; ++y0)
    for (index_t y1 = 0; y1 < s.grid[1]; ++y1) {
      const bool crosses = planes.lo <= y0 && y0 < planes.hi && rows.lo <= y1 && y1 < rows.hi;
      const index_t from = line(y0, y1);
      if (!crosses) {
        f(from, from + width, index_t{-1});
      } else {
        if (s.before && box.lo > 0) f(from, from + box.lo, index_t{-1});
        if (s.after && box.hi < width) f(from + box.hi, from + width, index_t{-1});
      }
    }
}

/// AFT Eq. 6 without the gate for output t and all lanes of the tile. `logs` is the tile's filter, [tap][lane], `unit`
/// that of its keys. O(Tk).
template <class C>
inline void exact_stencil_row(const problem& p, const stencil_shape& shape, const lane_tile<C>& tile, const C* logs,
                              const vec<C>& unit, index_t t, exact_row_result<C>& out) {
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const key_reader<C> keys(p, tile);
  C k[chunk * L], v[chunk * L];
  const vec<C> zero(C(0));
  // f(key, w, v, seen) for every key, in order.
  const auto visit = [&](const auto& f) {
    for_each_run(shape, t, [&](index_t i0, index_t i1, index_t tap) {
      for (index_t s0 = i0; s0 < i1; s0 += chunk) {
        const index_t s1 = min_of(s0 + chunk, i1);
        keys.read(s0, s1, k, v);
        for (index_t s = 0; s < s1 - s0; ++s) {
          const vec<C> key = load(k + s * L);
          const vec<C> weight = tap < 0 ? zero : load(logs + (tap + s0 - i0 + s) * L);
          f(key, weight, load(v + s * L), !(key == vec<C>(-inf)) && !(weight == vec<C>(-inf)), tap >= 0);
        }
      }
    });
  };

  exact_row_units<C> units;
  visit([&](const vec<C>& key, const vec<C>& weight, const vec<C>& value, const vec_mask<C>& seen, bool) {
    units.see(key, weight, value, seen);
  });
  const far_lanes<C> afar(p, tile);
  afar.show(units);
  units.settle();
  units.divide(unit, vec<C>(C(1)));

  vec_sum<C> box = zero_sum<C>();
  row_sum<C> rest;
  index_t outside = 0;
  visit([&](const vec<C>& key, const vec<C>& weight, const vec<C>& value, const vec_mask<C>& seen, bool in_box) {
    const exact_term<C> x = units.term(key, weight, value, seen);
    if (in_box) {
      box = {mul_add(x.factor, x.weighted, box.num), mul_add(x.factor, x.mass, box.den)};
    } else {
      rest.add({x.weighted, x.mass});
      if (++outside % (index_t{1} << row_sum<C>::group) == 0) rest.join();
    }
  });
  units.result(box + (rest.total() + afar.sum_in(units)), out);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
