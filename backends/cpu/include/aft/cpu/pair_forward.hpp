// SPDX-License-Identifier: Apache-2.0
/// @file pair_forward.hpp  The forward call of every operator that weighs pairs: AFT Eq. 2 by the tile engine.
#pragma once

#include "exact.hpp"
#include "gates.hpp"
#include "key_columns.hpp"
#include "pair_fold.hpp"
#include "pair_instances.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Finishes a panel: proves num / den or takes the exact row, then gates and stores. y may be q itself, so a row's q
/// is read before its y is written.
template <class C>
[[gnu::flatten]] inline void finish_queries(const problem& p, const pair_geometry& g, const row_state& state,
                                            const pair_weights<C>& weights, const lane_tile<C>& tile,
                                            const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                                            const C* c) {
  using k_ = exp_constants<C>;
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::columns;
  constexpr index_t M = tuning<C>::rows;
  const index_t group = p.d / p.hk;
  const bool gated = p.gate_fn != gate::none && p.y.set;
  C q[M * L], y[M * L], average[M * L], lse[M * L], inverse[M * L], exponent[M * L], hi[M * L], lo[M * L];
  if (gated) {
    const lane_field<C> queries(p.q, p.grid, tile, 1);
    queries.read(r0, r1, q);
    queries.prefetch(r1, r1 + M, p.Tq);
  }
  C used[L];
  for (index_t l = 0; l < L; ++l) used[l] = l < tile.count ? C(1) : C(0);
  const vec<C> zero(C(0)), one(C(1)), largest(k_::largest);
  const auto unused = load(used) == zero;
  const bool logs = p.lse.set || state.set;
  for (index_t r = 0; r < r1 - r0; ++r) {
    const vec<C> num = load(c + r * N);
    const vec<C> den = load(c + r * N + L);
    vec<C> o = (num / den) * load(cs.unscale);
    // Underflowed terms change num / den by at most T 2^-126 / den, relative to max |v|; above the bounds that is
    // far below an ulp. NaN and infinities fail the comparisons.
    const auto proven = ((den >= vec<C>(k_::proof)) && (den <= largest) && (xsimd::abs(o) <= largest) &&
                         (xsimd::abs(num) >= load(cs.floor) * den)) ||
                        unused;
    store(average + r * L, o);
    if (logs) {
      const vec<C> safe = xsimd::select(den >= vec<C>(k_::proof) && den <= largest, den, one);
      const vec<C> scaled = load(cs.exponent) + vec<C>(rs.exponent[r]);
      const half_sum<C> base = add_halves<C>(load(cs.base), vec<C>(rs.base[r]));
      if (state.set && xsimd::any(differs<C>(base.hi, zero))) state.beyond->store(true, std::memory_order_relaxed);
      const vec<C> two(C(2)), half(C(0.5));
      store(lse + r * L, two * (base.hi + (base.lo + log_shifted<C>(safe, scaled) * half)));
      const split_exp<C> parts = split_denominator<C>(safe);
      store(inverse + r * L, one / parts.mantissa);
      store(exponent + r * L, parts.exponent + scaled);
      store(hi + r * L, base.hi);
      store(lo + r * L, base.lo);
    }
    if (!xsimd::all(proven)) {
      // Lane by lane, so that a lane's bits never depend on which neighbours share its vector.
      C flag[L];
      store(flag, xsimd::select(proven, one, zero));
      exact_row_result<C> exact;
      exact_row<C>(p, g, weights, tile, r0 + r, exact);
      for (index_t l = 0; l < tile.count; ++l) {
        if (flag[l] != C(0)) continue;
        average[r * L + l] = exact.average[l];
        lse[r * L + l] = exact.lse[l];
        inverse[r * L + l] = exact.inverse[l];
        exponent[r * L + l] = exact.exponent[l];
        hi[r * L + l] = exact.base_hi[l];
        lo[r * L + l] = exact.base_lo[l];
        if (state.set && exact.base_hi[l] != C(0)) state.beyond->store(true, std::memory_order_relaxed);
      }
    }
    if (p.y.set) {
      vec<C> out = load(average + r * L);
      if (gated) out = out * gate_value<C>(p.gate_fn, load(q + r * L));
      store(y + r * L, out);
    }
  }
  if (p.y.set) {
    const lane_field<C> results(p.y, p.grid, tile, 1);
    const bool around = p.win.bounded && results.goes_around(p);
    results.write(r0, r1, y, around);
    if (!around) results.prefetch(r1, r1 + M, p.Tq, true);
  }
  if (p.average.set) lane_field<C>(p.average, p.grid, tile, 1).write(r0, r1, average);
  if (p.lse.set) lane_field<C>(p.lse, p.grid, tile, group).write(r0, r1, lse);
  if (state.set) {
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    lane_field<C>(state.inverse, flat, tile, p.d / state_channels(p)).write(r0, r1, inverse);
    lane_field<C>(state.exponent, flat, tile, p.d / state_channels(p)).write(r0, r1, exponent);
  }
  if (state.base_hi.set) {
    const std::array<index_t, 3> flat{1, 1, p.Tq};
    lane_field<C>(state.base_hi, flat, tile, p.d / state_channels(p)).write(r0, r1, hi);
    lane_field<C>(state.base_lo, flat, tile, p.d / state_channels(p)).write(r0, r1, lo);
  }
}

/// Writes y, lse, average and `state`, those that are set. O(B Tq Tk d) multiply-adds for the dense part.
template <class C>
inline void pair_forward(const problem& p, const row_state& state, const cpu& exec, scratch& memory) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  const pair_instances<C> instances(p);
  const staged_factors<C> factors = stage_factors<C>(p, memory, true, false);
  const fold_plan<C> plan(query_geometry(p), instances.count(), instances.tiles(), thread_count(exec), memory);
  for_each_instance(plan, instances.count(), [&](index_t i, int thread) {
    const auto instance = instances.at(i);
    const pair_weights<C> weights(p, factors, instance.b, instance.h);
    fold_pairs<C>(
        plan, thread, instances.tiles(),
        [&](index_t r0, index_t r1, index_t s0, index_t s1, C* out, index_t ld) {
          weights.rows(r0, r1, s0, s1, out, ld);
        },
        [&](int, index_t tile, index_t n, C* P, column_scale<C>* cs) {
          pack_keys<C>(
              p, n, [&](index_t j) { return instances.tile(instance, tile + j); }, P, cs);
        },
        [&](index_t tile, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs, const C* c) {
          finish_queries<C>(p, plan.g, state, weights, instances.tile(instance, tile), cs, r0, r1, rs, c);
        });
  });
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
