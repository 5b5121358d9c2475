// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/kernel_uniform.hpp  Rows that all see the same keys: gate, dq and the sums of A and B in one
/// loop.
#pragma once

#include "../../math/gates.hpp"
#include "kernel.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// dy gate(q), and dy gate'(q), which o makes dq.
template <class C>
struct gate_gradient_pair {
  vec<C> g, slope;
  AFT_RETURNED_IN_PLACE
};
template <class C>
inline gate_gradient_pair<C> sigmoid_gradient(const vec<C>& dy, const vec<C>& exp_minus) {
  const gate_detail::sigmoid_parts<C> s(exp_minus);
  const vec<C> g = dy * s.value;
  return {g, g * s.rest};
}

/// What rows bring along besides reverse_rows, where their g is still to be formed; T as in fold_inputs.
template <class C, class T = C>
struct row_inputs {
  panel<T> dy{}, q{}, dq{};  ///< dq null if it is not wanted
  panel<C> lse{};            ///< null where reverse_rows has inverse and power instead
  bool streamed = false;     ///< dq is written by streaming stores
  bool uncached = false;     ///< the arrays are in memory, not in a cache

  /// The rows from r on.
  row_inputs from(index_t r) const { return {dy.from(r), q.from(r), dq.from(r), lse.from(r), streamed, uncached}; }
};

/// What sums without a term are after their first row, as reverse_any leaves them, but for A. Rows see keys, and their
/// base is 0. False where some o is extreme or not its centre, so that B is not 0: such rows are for reverse_panel.
template <class C>
inline bool enter_uniform_references(const reverse_lanes<C>& chunk, const reverse_view<C>& view,
                                     const reverse_rows<C>& rows, index_t width) {
  const vec<C> zero(C(0));
  bool plain = true;
  for (index_t l = 0; l < width; l += lanes<C>) {
    const vec<C> power = load(rows.power.data + l);
    const vec<C> exponent = power + vec<C>(scan_tuning<C>::slack);
    const vec<C> o = load(rows.o.data + l);
    const vec<C> size = (xsimd::abs)(o);
    store(chunk.exponent + l, exponent);
    store(chunk.o_peak + l, raise_peak<C>(zero, o));
    store(view.weight + l, times_pow2<C>(load(rows.inverse.data + l), power - exponent));
    const auto ordinary = (size <= vec<C>(scan_tuning<C>::value_high)) &
                          ((size >= vec<C>(scan_tuning<C>::value_low)) | (size == zero)) &
                          (o == load(chunk.centre + l));
    plain = plain && xsimd::all(ordinary);
  }
  return plain;
}

/// Sums whole panels of n rows with the sigmoid gate from `at` on, up to the first column that is for reverse_any,
/// whose g then stands in rows.g and whose dq is written; returns where it stopped. For many panels, without a call in
/// its loops and with copies, as fold_columns is.
template <class C, index_t rows, class T>
[[gnu::flatten, gnu::noinline]] panel_place sum_uniform_rows(const reverse_job<C>& job, const row_inputs<C, T>& inputs,
                                                             const segment& x, index_t n, panel_place at) {
  const reverse_lanes<C> chunk = job.chunk;
  const reverse_rows<C> shared = job.rows;
  const C* const limit = job.view.limit;
  const C* const weights = job.view.weight;
  const row_inputs<C, T> all = inputs;
  const index_t lane = x.lane, width = x.width, turn = turn_of<C>(x.width, inputs.uncached);
  const vec<C> low(scan_tuning<C>::value_low);
  const vec<C> high(scan_tuning<C>::value_high);
  const vec<C> near_q(near_gate<C>);
  const vec<C> lowest(empty_exponent<C>);
  const vec<C> zero(C(0));
  while (at.r + rows <= n) {
    const index_t end = at.i < turn ? turn : width;
    const row_inputs<C, T> in = all.from(at.r);
    const auto next = [&](const panel<T>& of) {
      return prefetch_lines<C>::with_turn(of, width, in.uncached, end == width, rows);
    };
    const prefetch_lines<C> next_dy = next(in.dy), next_q = next(in.q), next_dq = next(in.dq);
    for (index_t i = at.i; i < end; i += lanes<C>) {
      const index_t l = lane + i;
      const vec<C> o = load(shared.o.data + i);
      vec<C> queries[rows], exp_minus[rows];
      vec<C> size = zero;
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        // Between the fold of the keys and their gradients, which read them again: k and v are to stay in the cache.
        next_dy.prefetch_last(r, i, in.uncached);
        next_q.prefetch_last(r, i, in.uncached);
        if (in.dq.data != nullptr && !in.streamed) next_dq.prefetch_writes(r, i);
        queries[r] = load_as<C>(in.q.row(r) + i);
        size = larger_size<C>(size, queries[r]);
      }
      if (xsimd::all(size <= near_q)) {
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) exp_minus[r] = exp_near<C, true>(queries[r], zero);
      } else {
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) exp_minus[r] = quotient_exp_minus<C>(queries[r]);
      }
      vec<C> g[rows];
      vec<C> g_peak = load(chunk.g_peak + l);
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        const gate_gradient_pair<C> both = sigmoid_gradient<C>(load_as<C>(in.dy.row(r) + i), exp_minus[r]);
        g[r] = both.g;
        g_peak = larger_size<C>(g_peak, g[r]);
        if (in.dq.data != nullptr) put_gradient<C>(in.dq.row(r) + i, both.slope * o, in.streamed);
      }
      const auto ordinary = (load(limit + l) >= lowest) & (g_peak <= high) & ((g_peak >= low) | (g_peak == zero));
      if (!xsimd::all(ordinary)) {
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) store(shared.g.row(r) + i, g[r]);
        return {at.r, i};
      }
      const vec<C> weight = load(weights + l);
      vec<C> a = load(chunk.a + l);
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) a = mul_add(weight, g[r], a);
      store(chunk.a + l, a);
      store(chunk.g_peak + l, g_peak);
    }
    at = at.after(end, width, rows);
  }
  return at;
}

/// The same for n rows, a multiple of `rows`, of whole segments, whatever they hold.
template <class C, index_t rows, class T>
[[gnu::noinline]] void uniform_panels(const reverse_job<C>& job, const row_inputs<C, T>& in, const segment& x,
                                      index_t n) {
  for (panel_place at; at.r < n;) {
    at = sum_uniform_rows<C, rows>(job, in, x, n, at);
    if (at.r >= n) return;
    for (index_t r = 0; r < rows; ++r) reverse_any<C, false>(job, x.lane + at.i, at.i, r);
    at = at.after(at.i + lanes<C>, x.width, rows);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
