// SPDX-License-Identifier: Apache-2.0
/// @file stencil/backward/filter_gradient.hpp  dr[h,j] = sum over b, t and the channels of h of a[t,s,c] g (v[s] -
/// o[t]).
#pragma once

#include "../../runtime/parallel.hpp"
#include "../../softmax/proof.hpp"
#include "exact.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// correlate for any `f`.
template <class C>
[[gnu::noinline]] void correlate_taps(const stencil_shape& shape, const C* P, const C* Q, C* sums,
                                      function_ref<void(index_t, index_t, index_t, index_t, const C*)> f) {
  constexpr index_t L = lanes<C>;
  constexpr index_t most = query_block<C>::most;
  const index_t row = shape.width() * 2 * L;
  stencil_run<C> run;
  run.weight_row = run.in_row = row;
  run.weight_plane = run.in_plane = shape.grid[1] * row;
  run.taps = run.width = shape.width();
  run.shift = -shape.left[2];
  // Outputs with an input under a tap, on one axis.
  const auto outputs = [&](std::size_t axis, index_t j) {
    const index_t shift = j - shape.left[axis];
    const index_t lo = shift < 0 ? -shift : 0;
    const index_t hi = shift > 0 ? shape.grid[axis] - shift : shape.grid[axis];
    return stencil_shape::span{lo, max_of(hi, lo)};
  };
  index_t tap = 0;
  for (index_t j0 = 0; j0 < shape.taps[0]; ++j0)
    for (index_t j1 = 0; j1 < shape.taps[1]; ++j1) {
      const auto planes = outputs(0, j0);
      const auto lines = outputs(1, j1);
      run.planes = planes.hi - planes.lo;
      run.rows = lines.hi - lines.lo;
      run.weights = Q + (planes.lo * shape.grid[1] + lines.lo) * row;
      run.in = P + ((planes.lo + j0 - shape.left[0]) * shape.grid[1] + lines.lo + j1 - shape.left[1]) * row;
      for (index_t j = 0; j < shape.taps[2]; j += most) {
        const index_t end = j + most < shape.taps[2] ? j + most : shape.taps[2];
        stencil_outputs<C, 2>(run, j, end, sums);
        for (index_t j2 = j; j2 < end; ++j2) f(tap++, j0, j1, j2, sums + (j2 - j) * 2 * L);
      }
    }
}

/// f(tap, j0, j1, j2, sum) for every tap in order: sum_t Q[t] P[t + tap], two vectors. The stencil again, with taps for
/// outputs and two weights and two inputs per step. `sums` holds a block.
template <class C, class F>
inline void correlate(const stencil_shape& shape, const C* P, const C* Q, C* sums, const F& f) {
  correlate_taps<C>(shape, P, Q, sums, function_ref<void(index_t, index_t, index_t, index_t, const C*)>(f));
}

/// partial[j][lane] += the tile's part of dr, the sum of Q0[t] P0[s] - Q1[t] P1[s].
template <class C>
inline void add_filter_gradient(const problem& p, const stencil_shape& shape, const lane_tile<C>& tile,
                                const stencil_table<C>& table, const column_scales<C>& cs, const payload_scales<C>& ps,
                                const incoming_rows<C>& rows, const C* P, const C* Q, C* sums, C* partial) {
  constexpr index_t L = lanes<C>;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const vec<C> zero(C(0)), one(C(1));
  const vec<C> exponents = load(cs.exponent) + load(ps.exponent);
  const auto idle = tile.idle();
  const auto usable = load(ps.usable) == one;
  const auto all_zero = load(ps.all_zero) == one;
  const vec<C> enough = kept_sum<C>(2 * p.Tq) * load(ps.lost);
  const vec<C> inverse_scale = load(ps.inverse_scale), key_inverse_scale = load(cs.inverse_scale);
  correlate<C>(shape, P, Q, sums, [&](index_t tap, index_t j0, index_t j1, index_t j2, const C* sum) {
    const vec<C> r = load(table.logs + tap * L);
    const scaled_factor<C> e(r, exponents, stencil_range<C>);
    const vec<C> terms = (xsimd::abs)(load(sum)) + (xsimd::abs)(load(sum + L));
    vec<C> dr = e.times(load(sum) - load(sum + L), inverse_scale, key_inverse_scale);
    const auto hidden = idle || (r == vec<C>(-inf));
    // A tap may join only pairs of tiny weight; below the bound those that were dropped could be all there are.
    const auto proven = hidden || (usable && e.reaches && is_finite<C>(dr) && (all_zero || (terms >= enough)));
    dr = xsimd::select(hidden, zero, dr);
    if (!xsimd::all(proven)) {
      const vec<C> exact = exact_stencil_tap<C>(p, shape, tile, r, rows, j0, j1, j2);
      dr = xsimd::select(proven, dr, exact);
    }
    store(partial + tap * L, load(partial + tap * L) + dr);
  });
}

/// Writes dr, where sum(h, tap) gives that of head h and one of the taps kept. Taps that reach no key get 0.
template <class C, class Sum>
inline void write_filter_gradient(const backward_problem& p, const stencil_shape& shape, const cpu& exec,
                                  const Sum& sum) {
  const bias_ref& to = p.dbias;
  parallel_for(to.heads, thread_count(exec), [&](index_t h, int) {
    for (index_t j0 = 0; j0 < p.taps[0]; ++j0)
      for (index_t j1 = 0; j1 < p.taps[1]; ++j1)
        for (index_t j2 = 0; j2 < p.taps[2]; ++j2) {
          const index_t i0 = j0 - shape.skipped[0];
          const index_t i1 = j1 - shape.skipped[1];
          const index_t i2 = j2 - shape.skipped[2];
          const bool kept =
              i0 >= 0 && i0 < shape.taps[0] && i1 >= 0 && i1 < shape.taps[1] && i2 >= 0 && i2 < shape.taps[2];
          const C dr = kept ? sum(h, (i0 * shape.taps[1] + i1) * shape.taps[2] + i2) : C(0);
          const index_t at = h * to.r_sh + j0 * to.r_sj[0] + j1 * to.r_sj[1] + j2 * to.r_sj[2];
          write_strided(to.r_type, to.r + at * size_of(to.r_type), 1, 1, &dr);
        }
  });
}

/// Joins the partial sums [part][tile][tap][lane] in a fixed order.
template <class C>
inline void join_filter_gradient(const backward_problem& p, const stencil_shape& shape, const lane_plan<C>& plan,
                                 index_t parts, const C* partials, const cpu& exec) {
  constexpr index_t L = lanes<C>;
  const index_t per_head = p.d / p.dbias.heads;
  const index_t size = shape.tap_count() * L;
  write_filter_gradient<C>(p, shape, exec, [&](index_t h, index_t tap) {
    C sum = C(0);
    for (index_t part = 0; part < parts; ++part)
      for (index_t i = 0; i < plan.together; ++i)
        for (index_t c = h * per_head; c < (h + 1) * per_head; ++c) {
          const index_t n = i * p.d + c;
          sum += partials[(part * plan.tiles + n / L) * size + tap * L + n % L];
        }
    return sum;
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
