// SPDX-License-Identifier: Apache-2.0
/// @file stencil_queries.hpp  The forward fold of one lane tile: every query's average, proven or exact.
#pragma once

#include <cmath>

#include "row_proof.hpp"
#include "stencil_exact.hpp"
#include "stencil_fold.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The results of a block of queries, [query][lane]. `lse` and the row state are filled on demand.
template <class C>
struct query_block {
  static constexpr index_t most = tuning_stencil<C>::block;
  C sums[most * 2 * lanes<C>];
  C average[most * lanes<C>];
  C lse[most * lanes<C>];
  C inverse[most * lanes<C>];
  C exponent[most * lanes<C>];
  C base_hi[most * lanes<C>];
  C base_lo[most * lanes<C>];
};

enum class query_results { averages, logs, state };

/// One lane tile of one group of batch elements, its sums on their way to averages.
template <class C>
struct query_fold {
  const problem& p;
  const stencil_shape& shape;
  const stencil_table<C>& table;
  const lane_tile<C>& tile;
  const column_scales<C>& cs;
  const C* marks[lanes<C>];  ///< of each lane the staged weights of its keys, two vectors apart; -0 marks a hidden one

  query_fold(const problem& p_, const stencil_shape& shape_, const stencil_table<C>& table_, const lane_tile<C>& tile_,
             const column_scales<C>& cs_, const C* P)
      : p(p_), shape(shape_), table(table_), tile(tile_), cs(cs_) {
    for (index_t l = 0; l < lanes<C>; ++l) marks[l] = P + lanes<C> + l;
  }

  /// True where query t of lane l sees no key; asked only where the sum of weights is 0. Such rows come in large
  /// numbers (padding), and an exact row of each would cost O(T^2).
  bool sees_nothing(index_t t, index_t l) const {
    if (cs.empty[l] != C(0)) return true;
    // Lanes with logits out of range were not staged faithfully.
    if (cs.usable[l] == C(0)) return false;
    if (p.causal && t < cs.first[l]) return true;
    if (!p.excluded) return false;
    constexpr index_t L = lanes<C>;
    bool nothing = true;
    for_each_run(shape, t, [&](index_t s0, index_t s1, index_t tap) {
      for (index_t s = s0; s < s1 && nothing; ++s) {
        const bool hidden = std::signbit(marks[l][2 * s * L]) || std::signbit(table.weights[(tap + s - s0) * L + l]);
        nothing = hidden;
      }
    });
    return nothing;
  }

  /// Averages and what else is wanted of queries [t0, t1), from num(i) and den(i) of the i-th.
  template <class Num, class Den>
  [[gnu::flatten]] void finish(index_t t0, index_t t1, query_results wanted, const Num& num_of, const Den& den_of,
                               query_block<C>& out) const {
    using k_ = exp_constants<C>;
    constexpr index_t L = lanes<C>;
    const vec<C> zero(C(0)), one(C(1)), largest(k_::largest);
    const vec<C> unscale = load(cs.unscale), floor = load(cs.floor);
    const vec<C> scaled = load(cs.exponent) + load(table.exponent);
    C used[L];
    for (index_t l = 0; l < L; ++l) used[l] = l < tile.count ? C(1) : C(0);
    const auto idle = load(used) == zero;
    const auto usable = differs<C>(load(cs.usable), zero);
    if (wanted == query_results::averages) {
      // The common call, the proof of all rows at once.
      proof_of_rows<C> rows(floor);
      for (index_t i = 0; i < t1 - t0; ++i) {
        const vec<C> num = num_of(i), den = den_of(i);
        const vec<C> average = (num / den) * unscale;
        store(out.average + i * L, average);
        rows.add(num, den, average);
      }
      if (xsimd::all((usable && rows.proven()) || idle)) return;
    }
    for (index_t i = 0; i < t1 - t0; ++i) {
      const vec<C> num = num_of(i);
      const vec<C> den = den_of(i);
      const vec<C> average = (num / den) * unscale;
      const auto proven = (usable && proven_average<C>(num, den, average, floor)) || idle;
      store(out.average + i * L, average);
      if (wanted != query_results::averages) {
        const vec<C> safe = xsimd::select((den >= vec<C>(k_::proof)) && (den <= largest), den, one);
        store(out.lse + i * L, log_shifted<C>(safe, scaled));
        if (wanted == query_results::state) {
          const split_exp<C> parts = split_denominator<C>(safe);
          store(out.inverse + i * L, one / parts.mantissa);
          store(out.exponent + i * L, parts.exponent + scaled);
          store(out.base_hi + i * L, zero);
          store(out.base_lo + i * L, zero);
        }
      }
      if (!xsimd::all(proven)) repair(t0 + i, i, proven, den, out);
    }
  }

 private:
  /// Lane by lane, so that a lane's bits never depend on which neighbours share its vector.
  [[gnu::noinline]] void repair(index_t t, index_t i, const vec_mask<C>& proven, const vec<C>& den,
                                query_block<C>& out) const {
    constexpr index_t L = lanes<C>;
    C flag[L], dens[L];
    store(flag, xsimd::select(proven, vec<C>(C(1)), vec<C>(C(0))));
    store(dens, den);
    exact_row_result<C> exact;
    bool evaluated = false;
    for (index_t l = 0; l < tile.count; ++l) {
      if (flag[l] != C(0)) continue;
      const index_t at = i * L + l;
      if (dens[l] == C(0) && sees_nothing(t, l)) {
        out.average[at] = C(0);
        out.lse[at] = -std::numeric_limits<C>::infinity();
        out.inverse[at] = out.exponent[at] = out.base_hi[at] = out.base_lo[at] = C(0);
        continue;
      }
      if (!evaluated) exact_stencil_row<C>(p, shape, tile, table.logs, t, exact);
      evaluated = true;
      out.average[at] = exact.average[l];
      out.lse[at] = exact.lse[l];
      out.inverse[at] = exact.inverse[l];
      out.exponent[at] = exact.exponent[l];
      out.base_hi[at] = exact.base_hi[l];
      out.base_lo[at] = exact.base_lo[l];
    }
  }
};

/// Calls done(t0, t1, block) for all queries in order, in blocks within a row of the grid.
template <class C, class Done>
inline void fold_queries(const query_fold<C>& fold, query_results wanted, const C* P, box_complement<C>& rest,
                         query_block<C>& block, const Done& done) {
  fold_grid<C>(fold.shape, fold.table.weights, fold.table.outside, P, rest, block.sums, query_block<C>::most,
               [&](index_t t0, index_t t1) {
                 constexpr index_t L = lanes<C>;
                 fold.finish(
                     t0, t1, wanted, [&](index_t i) { return load(block.sums + i * 2 * L); },
                     [&](index_t i) { return load(block.sums + i * 2 * L + L); }, block);
                 done(t0, t1, block);
               });
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
