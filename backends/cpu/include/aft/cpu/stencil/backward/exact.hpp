// SPDX-License-Identifier: Apache-2.0
/// @file stencil/backward/exact.hpp  Gradients of one key or one tap by their definition, for lanes not proven.
#pragma once

#include "../../softmax/exact_weight.hpp"
#include "../../tensor/visible_keys.hpp"
#include "rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// dv = sum_t a g and dk = sum_t a g (v - o) of key s. `back` is the transposed shape. O(Tq).
template <class C>
[[gnu::noinline]] void exact_stencil_key(const stencil_shape& back, const C* logs, const incoming_rows<C>& rows,
                                         index_t s, const vec<C>& key, const vec<C>& value, C* dv, C* dk) {
  constexpr index_t L = lanes<C>;
  const vec<C> zero(C(0));
  const index_t last = back.tap_count() - 1;
  vec<C> dv_sum(zero), dk_sum(zero);
  for_each_run(back, s, [&](index_t t0, index_t t1, index_t tap) {
    for (index_t t = t0; t < t1; ++t) {
      const vec<C> weight = tap < 0 ? zero : load(logs + (last - (tap + t - t0)) * L);
      const pair_gradient_terms<C> terms = exact_pair_terms<C>(rows, t, key, weight, value);
      dv_sum = dv_sum + terms.dv;
      dk_sum = dk_sum + terms.dk;
    }
  });
  store(dv, dv_sum);
  store(dk, dk_sum);
}

/// Rows of outputs that have an input under tap (j0, j1): calls f(first output, first input) of each, both at x = 0.
template <class F>
inline void for_each_tap_row(const stencil_shape& s, index_t j0, index_t j1, const F& f) {
  for (index_t y0 = 0; y0 < s.grid[0]; ++y0) {
    const index_t i0 = y0 + j0 - s.left[0];
    if (i0 < 0 || i0 >= s.grid[0]) continue;
    for (index_t y1 = 0; y1 < s.grid[1]; ++y1) {
      const index_t i1 = y1 + j1 - s.left[1];
      if (i1 < 0 || i1 >= s.grid[1]) continue;
      f((y0 * s.grid[1] + y1) * s.width(), (i0 * s.grid[1] + i1) * s.width());
    }
  }
}

/// sum_t a g (v - o) over the pairs of one tap, for all lanes of the tile. O(Tq).
template <class C>
[[gnu::noinline]] vec<C> exact_stencil_tap(const problem& p, const stencil_shape& shape, const lane_tile<C>& tile,
                                           const vec<C>& weight, const incoming_rows<C>& rows, index_t j0, index_t j1,
                                           index_t j2) {
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;
  const key_reader<C> keys(p, tile);
  C k[chunk * L], v[chunk * L];
  const vec<C> zero(C(0));
  vec<C> sum(zero);
  const index_t shift = j2 - shape.left[2];
  const index_t x0 = shift < 0 ? -shift : 0;
  const index_t x1 = shift > 0 ? shape.width() - shift : shape.width();
  for_each_tap_row(shape, j0, j1, [&](index_t t_row, index_t s_row) {
    for (index_t a = x0; a < x1; a += chunk) {
      const index_t e = min_of(a + chunk, x1);
      const index_t s0 = s_row + a + shift;
      keys.read(s0, s0 + (e - a), k, v);
      for (index_t x = a; x < e; ++x) {
        sum = sum + exact_pair_terms<C>(rows, t_row + x, load(k + (x - a) * L), weight, load(v + (x - a) * L)).dk;
      }
    }
  });
  return sum;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
