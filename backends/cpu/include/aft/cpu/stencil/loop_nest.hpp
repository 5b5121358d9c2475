// SPDX-License-Identifier: Apache-2.0
/// @file stencil/loop_nest.hpp  The sum over a whole grid of inputs: taps under the box, one outside weight elsewhere.
#pragma once

#include "../runtime/function_ref.hpp"
#include "complement.hpp"
#include "microkernel.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// out[x - x0] = sum_j table[j] P[x + j - left] + outside * (sum of the rest), outputs [x0, x1) of row (y0, y1), for
/// which `rest` was begun.
template <class C>
inline void stencil_row(const stencil_shape& shape, const C* table, const C* outside, const C* P,
                        const box_complement<C>& rest, index_t y0, index_t y1, index_t x0, index_t x1, C* out) {
  constexpr index_t L = lanes<C>;
  const stencil_shape::span planes = shape.reach(0, y0);
  const stencil_shape::span rows = shape.reach(1, y1);
  stencil_run<C> run;
  run.weight_row = shape.taps[2] * L;
  run.weight_plane = shape.taps[1] * run.weight_row;
  run.weights =
      table + (planes.lo - y0 + shape.left[0]) * run.weight_plane + (rows.lo - y1 + shape.left[1]) * run.weight_row;
  run.in_row = shape.width() * 2 * L;
  run.in_plane = shape.grid[1] * run.in_row;
  run.in = P + planes.lo * run.in_plane + rows.lo * run.in_row;
  run.planes = planes.hi - planes.lo;
  run.rows = rows.hi - rows.lo;
  run.taps = shape.taps[2];
  run.width = shape.width();
  run.shift = -shape.left[2];
  run.rest = shape.complement() ? rest.at(0) : nullptr;
  run.outside = outside;
  stencil_outputs<C, 1>(run, x0, x1, out);
}

/// fold_grid for any `done`. ask(t) is called with numbers of outputs that are all but done, three times a row: what an
/// item asks for in one burst waits for itself. Depthwise conv of 256 images on two threads took 0.97 of its time with
/// two calls a row, then 0.96 to 0.98 with three, and no less with four (Zen 5, 2026-11).
template <class C>
[[gnu::noinline]] void fold_stencil_rows(const stencil_shape& shape, const C* table, const C* outside, const C* P,
                                         box_complement<C>& rest, C* sums, index_t most,
                                         function_ref<void(index_t, index_t)> done,
                                         function_ref<void(index_t)> prefetch_into) {
  rest.prepare(P);
  const index_t half = min_of(most, shape.width()) / 2;
  for (index_t row = 0; row < shape.rows(); ++row) {
    const index_t y0 = row / shape.grid[1];
    const index_t y1 = row % shape.grid[1];
    prefetch_into(row * shape.width() + half / 2);
    rest.begin_row(P, y0, y1);
    prefetch_into(row * shape.width() + half + half / 2);
    for (index_t x0 = 0; x0 < shape.width(); x0 += most) {
      const index_t x1 = x0 + most < shape.width() ? x0 + most : shape.width();
      stencil_row<C>(shape, table, outside, P, rest, y0, y1, x0, x1, sums);
      prefetch_into(row * shape.width() + x1);
      done(row * shape.width() + x0, row * shape.width() + x1);
    }
  }
}

/// stencil_row for the whole grid in order: calls done(t0, t1) when `sums` holds outputs [t0, t1), at most `most` of
/// one row of the grid.
template <class C, class Done>
inline void fold_grid(const stencil_shape& shape, const C* table, const C* outside, const C* P, box_complement<C>& rest,
                      C* sums, index_t most, const Done& done) {
  const auto nothing = [](index_t) {};
  fold_stencil_rows<C>(shape, table, outside, P, rest, sums, most, function_ref<void(index_t, index_t)>(done),
                       function_ref<void(index_t)>(nothing));
}

}  // namespace aft::inline AFT_ISA::cpu_impl
