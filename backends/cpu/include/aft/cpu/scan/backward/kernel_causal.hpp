// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/kernel_causal.hpp  Rows of a causal call from the last to the first, each with the key beside
/// it: gate, dq, the sums A and B and that key's gradients in one loop.
#pragma once

#include "kernel_uniform.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Sizes between which A and B, if they are not 0, and an exponential may be multiplied before or after its power of
/// two comes: no number on the way leaves the normal range, so that the bits are the same.
template <class C>
inline constexpr C causal_exponent = sizeof(C) == 4 ? C(60) : C(500);
template <class C>
inline constexpr C causal_size = sizeof(C) == 4 ? C(0x1p60) : C(0x1p500);

/// Columns from i on of scan_tuning::rows rows with the sigmoid gate and their keys, up to the first vector that is for
/// reverse_any, of which dq alone is written, as it will be again; returns where it stopped. Without a call in its
/// loop, and with copies, as fold_columns is.
template <class C, bool given, class T>
[[gnu::flatten, gnu::noinline]] index_t add_causal_rows(const reverse_job<C>& job, const row_inputs<C, T>& inputs,
                                                        const reverse_keys<C, T>& key_inputs, const segment& x,
                                                        index_t i) {
  constexpr index_t rows = scan_tuning<C>::rows;
  const reverse_lanes<C> chunk = job.chunk;
  const reverse_view<C> view = job.view;
  const reverse_rows<C> row = job.rows;
  const reverse_keys<C, T> keys = key_inputs;
  const row_inputs<C, T> in = inputs;
  const index_t lane = x.lane, width = x.width;
  const vec<C> low(scan_tuning<C>::value_low), high(scan_tuning<C>::value_high);
  const vec<C> near_q(near_gate<C>), zero(C(0)), one(C(1));
  const vec<C> ln2(C(0.6931)), reach(exp_constants<C>::bias - C(8)), most(causal_exponent<C>);
  // Two panels of nine arrays have more lines in a set than the first-level cache: asked for there, 17 MB take 1.1
  // times as long (Emerald Rapids, 2026-11).
  const auto next = [&](const auto& of) { return prefetch_lines<C>::whole(of, -1, width, in.uncached); };
  const prefetch_lines<C> next_dy = next(in.dy), next_q = next(in.q), next_dq = next(in.dq), next_o = next(row.o),
                          next_lse = next(in.lse), next_k = next(keys.k), next_v = next(keys.v),
                          next_dk = next(keys.dk), next_dv = next(keys.dv);
  const bool with_dq = in.dq.data != nullptr, with_dk = keys.dk.data != nullptr, with_dv = keys.dv.data != nullptr;
  for (; i < width; i += lanes<C>) {
    const index_t l = lane + i;
    const vec<C> limit = load(view.limit + l), power = load(view.a_power + l), centre = load(chunk.centre + l);
    vec<C> size_q = zero, size_k = zero, o_peak = load(chunk.o_peak + l);
    vec<C> least(std::numeric_limits<C>::infinity()), greatest = -least;
    AFT_UNROLL(4)
    for (index_t r = 0; r < rows; ++r) {
      next_dy.prefetch_second_level(r, i);
      next_q.prefetch_second_level(r, i);
      next_k.prefetch_second_level(r, i);
      if (with_dk) next_v.prefetch_second_level(r, i);
      size_q = larger_size<C>(size_q, load_as<C>(in.q.row(r) + i));
      size_k = larger_size<C>(size_k, load_as<C>(keys.k.row(r) + i));
      o_peak = larger_size<C>(o_peak, load(row.o.row(r) + i));
      if constexpr (given) {
        next_o.prefetch_second_level(r, i);
        next_lse.prefetch_second_level(r, i);
        const vec<C> lse = load(in.lse.row(r) + i);
        least = min_ignoring_nan<C>(least, lse);
        greatest = max_ignoring_nan<C>(greatest, lse);
      } else {
        least = min_ignoring_nan<C>(least, load(row.inverse.row(r) + i));
        greatest = max_ignoring_nan<C>(greatest, load(row.power.row(r) + i));
      }
    }
    // References stay as they are, every row has seen a key, and none meets tiny numbers alone, whatever comes with it.
    auto plain = (size_q <= near_q) & (o_peak <= high) & ((load(chunk.o_peak + l) >= low) | (o_peak == zero));
    const auto ordinary_size = (size_k <= (most - (xsimd::abs)(power)) * ln2) & (load(view.base + l) == zero) &
                               (power == load(view.b_power + l));
    if constexpr (given) {
      plain = plain & (least >= (one - limit) * ln2) & (greatest <= (reach - limit) * ln2) &
              (greatest <= vec<C>(exp_constants<C>::range));
    } else {
      plain = plain & (least > zero) & (greatest <= limit);
    }
    if (!xsimd::all(plain)) return i;
    vec<C> g[rows], weight[rows];
    const vec<C> old_g_peak = load(chunk.g_peak + l);
    vec<C> g_peak = old_g_peak;
    AFT_UNROLL(4)
    for (index_t r = 0; r < rows; ++r) {
      if constexpr (given) {
        weight[r] = exp_near<C, true>(load(in.lse.row(r) + i), limit);
      } else {
        weight[r] = times_pow2<C>(load(row.inverse.row(r) + i), load(row.power.row(r) + i) - limit);
      }
      const vec<C> exp_minus = exp_near<C, true>(load_as<C>(in.q.row(r) + i), zero);
      const gate_gradient_pair<C> both = sigmoid_gradient<C>(load_as<C>(in.dy.row(r) + i), exp_minus);
      g[r] = both.g;
      g_peak = larger_size<C>(g_peak, g[r]);
      if (!with_dq) continue;
      if (!in.streamed) next_dq.prefetch_writes(r, i);
      put_gradient<C>(in.dq.row(r) + i, both.slope * load(row.o.row(r) + i), in.streamed);
    }
    if (!xsimd::all((g_peak <= high) & ((old_g_peak >= low) | (g_peak == zero)))) return i;
    const reverse_past<C> past(view, l);
    vec<C> a = load(chunk.a + l), b = load(chunk.b + l);
    vec<C> to_v[rows], to_k[rows];
    seen_range<C> sizes;
    AFT_UNROLL(4)
    for (index_t r = rows - 1; r >= 0; --r) {
      a = mul_add(weight[r], g[r], a);
      b = mul_add(weight[r] * g[r], load(row.o.row(r) + i) - centre, b);
      const reverse_sums<C> sum(past, a, b);
      sizes.add_unless_zero((xsimd::abs)(sum.a));
      sizes.add_unless_zero((xsimd::abs)(sum.b));
      to_v[r] = sum.a;
      to_k[r] = sum.b;
    }
    if (xsimd::all(ordinary_size & sizes.within(C(1) / causal_size<C>, causal_size<C>))) {
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        const vec<C> e = exp_near<C>(load_as<C>(keys.k.row(r) + i), -power);
        const vec<C> dv = e * to_v[r];
        if (with_dv) {
          if (!keys.dv_streamed) next_dv.prefetch_writes(r, i);
          put_gradient<C>(keys.dv.row(r) + i, dv, keys.dv_streamed);
        }
        if (with_dk) {
          if (!keys.dk_streamed) next_dk.prefetch_writes(r, i);
          put_gradient<C>(keys.dk.row(r) + i, mul_add(dv, load_as<C>(keys.v.row(r) + i) - past.centre, -(e * to_k[r])),
                          keys.dk_streamed);
        }
      }
    } else {
      // Of such g and averages the second term of dk is far from the end of the range: the first alone may leave it.
      for (index_t r = 0; r < rows; ++r) emit_key<C, true>(keys, past, i, r, reverse_sums<C>(to_v[r], to_k[r]));
    }
    store(chunk.a + l, a);
    store(chunk.b + l, b);
    store(chunk.g_peak + l, g_peak);
    store(chunk.o_peak + l, o_peak);
  }
  return i;
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
