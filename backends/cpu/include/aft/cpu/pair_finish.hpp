// SPDX-License-Identifier: Apache-2.0
/// @file pair_finish.hpp  From the sums of a panel of queries to y, average, lse and state.
#pragma once

#include "exact.hpp"
#include "gates.hpp"
#include "pair_fold.hpp"
#include "row_proof.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Rows of a result that most calls do not ask for.
template <class C>
[[gnu::noinline]] inline void write_rows(const field& to, const std::array<index_t, 3>& grid, const lane_tile<C>& tile,
                                         index_t share, index_t r0, index_t r1, const C* from) {
  lane_field<C>(to, grid, tile, share).write(r0, r1, from);
}

/// Finishes a panel: proves num / den or takes the exact row, then gates and stores. y may be q itself, so a row's q
/// is read before its y is written.
template <class C>
[[gnu::flatten]] inline void finish_queries(const problem& p, const fold_plan<C>& plan, const row_state& state,
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
  // Average and sigmoid share a division. Whatever else is wanted: y must not depend on it.
  const bool quotient = gated && p.gate_fn == gate::sigmoid;
  const bool averages = !quotient || p.average.set;
  const vec<C> unscale = load(cs.unscale), floor = load(cs.floor);
  const auto proof = [&](const vec<C>& num, const vec<C>& den, const vec<C>& o) {
    return proven_average<C>(num, den, o, floor);
  };
  const auto write_y = [&] {
    const lane_field<C> results(p.y, p.grid, tile, 1);
    const bool around = p.win.bounded && results.goes_around(p);
    results.write(r0, r1, y, around);
    if (!around) results.prefetch(r1, r1 + M, p.Tq, true);
  };
  if (quotient && !averages && !logs) {
    // The common call, the proof of all rows at once: a branch a row costs a third of the loop.
    proof_of_rows<C> rows(floor);
    seen_size<C> growths;
    for (index_t r = 0; r < r1 - r0; ++r) {
      const vec<C> num = load(c + r * N);
      const vec<C> den = load(c + r * N + L);
      const vec<C> growth = gate_detail::growth<C>(load(q + r * L));
      const vec<C> out = shared_division<C>(num, den, unscale, growth);
      store(y + r * L, out);
      rows.add(num, den, out);
      growths.add(growth);
    }
    if (xsimd::all((rows.proven() && growths.within(shared_growth<C>)) || unused)) return write_y();
  }
  for (index_t r = 0; r < r1 - r0; ++r) {
    const vec<C> num = load(c + r * N);
    const vec<C> den = load(c + r * N + L);
    vec<C> o = zero, out = zero;
    if (averages) {
      o = (num / den) * unscale;
      store(average + r * L, o);
    }
    if (quotient) {
      out = gated_average<C>(num, den, unscale, load(q + r * L));
      if (!averages) o = out;
    }
    const auto proven = proof(num, den, o) || unused;
    if (logs) {
      const vec<C> safe = xsimd::select(den >= vec<C>(k_::proof) && den <= largest, den, one);
      const vec<C> scaled = load(cs.exponent) + vec<C>(rs.exponent[r]);
      const half_sum<C> base = add_halves<C>(load(cs.base), vec<C>(rs.base[r]));
      if (state.set && xsimd::any(differs<C>(base.hi, zero))) state.beyond->store(true, std::memory_order_relaxed);
      store(lse + r * L, log_from_base<C>(base, safe, scaled));
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
      exact_row<C>(p, plan.g, weights, tile, r0 + r, plan.paired, rs.ends, exact);
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
      if (quotient) {
        const vec<C> again = gated_average<C>(load(exact.num), load(exact.den), load(exact.unscale), load(q + r * L));
        out = xsimd::select(proven, out, again);
      }
    }
    if (p.y.set) {
      if (!quotient) out = load(average + r * L);
      if (gated && !quotient) out = out * gate_value<C>(p.gate_fn, load(q + r * L));
      store(y + r * L, out);
    }
  }
  if (p.y.set) write_y();
  const auto put_rows = [&](const field& to, const std::array<index_t, 3>& grid, index_t share, const C* from) {
    if (to.set) write_rows<C>(to, grid, tile, share, r0, r1, from);
  };
  const std::array<index_t, 3> flat{1, 1, p.Tq};
  const index_t share = state.set ? p.d / state_channels(p) : 1;
  put_rows(p.average, p.grid, 1, average);
  put_rows(p.lse, p.grid, group, lse);
  put_rows(state.inverse, flat, share, inverse);
  put_rows(state.exponent, flat, share, exponent);
  put_rows(state.base_hi, flat, share, hi);
  put_rows(state.base_lo, flat, share, lo);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
