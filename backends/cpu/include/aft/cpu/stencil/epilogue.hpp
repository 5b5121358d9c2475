// SPDX-License-Identifier: Apache-2.0
/// @file stencil/epilogue.hpp  The forward fold of one lane tile: every query's average, proven or exact.
#pragma once

#include <cmath>

#include "../math/gates.hpp"
#include "../softmax/proof.hpp"
#include "exact.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Rows of q, in the caller's array or in a buffer; null where only the state is wanted.
template <class C>
struct gate_inputs {
  const C* first = nullptr;
  index_t step = lanes<C>;

  const C* row(index_t i) const { return first + i * step; }
  gate_inputs from(index_t i) const { return first == nullptr ? *this : gate_inputs{row(i), step}; }
};

/// The results of a block of queries, [query][lane]; what is not wanted is left unfilled.
template <class C>
struct query_block {
  static constexpr index_t most = tuning_stencil<C>::block;
  C sums[most * 2 * lanes<C>];
  C y[most * lanes<C>];
  C average[most * lanes<C>];
  C lse[most * lanes<C>];
  C inverse[most * lanes<C>];
  C exponent[most * lanes<C>];
  C base_hi[most * lanes<C>];
  C base_lo[most * lanes<C>];
};

/// What is wanted besides y: nothing or the average, lse too, or the row state instead of y.
enum class query_results { averages, logs, state };

/// One lane tile of one group of batch elements, its sums on their way to averages.
template <class C>
struct query_fold {
  const problem& p;
  const stencil_shape& shape;
  const stencil_table<C>& table;
  const lane_tile<C>& tile;
  const column_scales<C>& cs;
  /// All rows of y where each is a vector: stored one by one between the divisions, they do not wait for each other as
  /// they do in a loop that only stores (0.95 of depthwise conv, Emerald Rapids). Else y is left in the block.
  written_rows<C> y;
  const C* hidden_flags[lanes<C>];  ///< of each lane the staged weights of its keys, two vectors apart; -0 marks a
                                    ///< hidden one
  index_t any_hidden;               ///< the key of the first mark
  C enough[lanes<C>];               ///< a den proves itself from here on; filled where the table is sharp

  query_fold(const problem& p_, const stencil_shape& shape_, const stencil_table<C>& table_, const lane_tile<C>& tile_,
             const column_scales<C>& cs_, const C* P, index_t first_key = 0)
      : p(p_), shape(shape_), table(table_), tile(tile_), cs(cs_), any_hidden(first_key) {
    for (index_t l = 0; l < lanes<C>; ++l) hidden_flags[l] = P + lanes<C> + l;
  }

  /// Where the table is sharp, by which sums of `keys` keys at hand are proven. What is not at hand has the outside
  /// weight, at most 1 there.
  [[gnu::noinline]] void weigh_losses(index_t keys) {
    if (!table.any_sharp) return;
    store(enough, vec<C>(exp_constants<C>::proof));
    for (index_t l = 0; l < lanes<C>; ++l)
      if (table.sharp[l] != C(0) && loses_keys<C>(cs, l, hidden_flags[l], keys)) enough[l] *= raised_bounds<C>;
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
        const bool hidden = std::signbit(hidden_flags[l][2 * (s - any_hidden) * L]) ||
                            std::signbit(table.weights[(tap + s - s0) * L + l]);
        nothing = hidden;
      }
    });
    return nothing;
  }

  /// Results of queries [t0, t1), from num(i) and den(i) of the i-th; `gates` are their q, and not where y goes: y is
  /// stored before it is proven.
  template <class Num, class Den>
  [[gnu::flatten]] void epilogue(index_t t0, index_t t1, query_results wanted, const Num& num_of, const Den& den_of,
                                 gate_inputs<C> gates, query_block<C>& out) const {
    using k_ = exp_constants<C>;
    constexpr index_t L = lanes<C>;
    const vec<C> zero(C(0)), one(C(1)), largest(k_::largest);
    const vec<C> inverse_scale = load(cs.inverse_scale), floor = load(cs.floor);
    const vec<C> scaled = load(cs.exponent) + load(table.exponent);
    const auto idle = tile.idle();
    const auto usable = differs<C>(load(cs.usable), zero);
    // Average and sigmoid share a division. Whatever else is wanted: y must not depend on it.
    const bool quotient = gates.first != nullptr && p.gate_fn == gate::sigmoid;
    const bool averages = !quotient || p.average.set;
    const written_rows<C> ys =
        y.to != nullptr ? written_rows<C>{y.row(t0), y.step, y.streamed} : written_rows<C>{out.y};
    bool all_proven = false;
    // The common calls, the proof of all rows at once.
    const auto shared = [&](const written_rows<C>& to, const auto& exp_minus_of) __attribute__((always_inline)) {
      proof_of_rows<C> rows(floor);
      vec<C> size = zero;
      AFT_UNROLL(1)
      for (index_t i = 0; i < t1 - t0; ++i) {
        const vec<C> num = num_of(i), den = den_of(i);
        const vec<C> o = exp_minus_quotient<C>(num, den, exp_minus_of(i, size)) * inverse_scale;
        put<C>(to.row(i), o, to.streamed);
        rows.add(num, den, o);
      }
      return xsimd::all((usable && rows.proven() && (size <= vec<C>(shared_gate<C>))) || idle);
    };
    if (table.any_sharp) {
      // Row by row, by each lane's bound.
    } else if (wanted == query_results::averages && quotient && !averages) {
      all_proven = shared(
          ys, [&](index_t i, vec<C> & size) __attribute__((always_inline)) {
            const vec<C> q = load(gates.row(i));
            size = larger_size<C>(size, q);
            return exp_near<C, true>(q, zero);
          });
    } else if (wanted == query_results::averages && !quotient) {
      all_proven = shared({out.average}, [&](index_t, vec<C>&) { return zero; });
    } else if (wanted != query_results::state && quotient) {
      all_proven = saves_all(t1 - t0, wanted == query_results::logs, num_of, den_of, gates, ys, out);
    }
    for (index_t i = 0; i < t1 - t0 && !all_proven; ++i) {
      const vec<C> num = num_of(i);
      const vec<C> den = den_of(i);
      vec<C> o = zero;
      if (averages) {
        o = (num / den) * inverse_scale;
        store(out.average + i * L, o);
      }
      if (quotient) {
        const vec<C> gated = gated_average<C>(num, den, inverse_scale, load(gates.row(i)));
        store(ys.row(i), gated);
        if (!averages) o = gated;
      }
      auto proven = (usable && proven_average<C>(num, den, o, floor)) || idle;
      if (table.any_sharp) proven = proven && ((den >= load(enough)) || idle);
      if (wanted != query_results::averages) {
        const vec<C> safe = xsimd::select((den >= vec<C>(k_::proof)) && (den <= largest), den * load(cs.unit), one);
        store(out.lse + i * L, log_shifted<C>(safe, scaled));
        if (wanted == query_results::state) {
          const split_exp<C> parts = split_number<C>(safe);
          store(out.inverse + i * L, one / parts.mantissa);
          store(out.exponent + i * L, parts.exponent + scaled);
          store(out.base_hi + i * L, zero);
          store(out.base_lo + i * L, zero);
        }
      }
      if (!xsimd::all(proven)) repair(t0 + i, i, proven, den, quotient ? gates.row(i) : nullptr, ys.row(i), out);
    }
    for (index_t i = 0; i < t1 - t0 && gates.first != nullptr && !quotient; ++i)
      put<C>(ys.row(i), load(out.average + i * L) * gate_value<C>(p.gate_fn, load(gates.row(i))), ys.streamed);
  }

  /// The calls of a training step: average and, with `logs`, lse besides. Whether every lane of every row is proven; if
  /// not, all of it is to be written again.
  template <class Num, class Den>
  [[gnu::noinline, gnu::flatten]] bool saves_all(index_t rows, bool logs, Num num_of, Den den_of, gate_inputs<C> gates,
                                                 written_rows<C> ys, query_block<C>& out) const {
    constexpr index_t L = lanes<C>;
    const vec<C> zero(C(0)), inverse_scale = load(cs.inverse_scale), unit = load(cs.unit);
    const vec<C> scaled = load(cs.exponent) + load(table.exponent);
    proof_of_rows<C> proof(load(cs.floor));
    vec<C> size = zero;
    AFT_UNROLL(1)
    for (index_t i = 0; i < rows; ++i) {
      const vec<C> num = num_of(i), den = den_of(i), q = load(gates.row(i));
      const vec<C> average = (num / den) * inverse_scale;
      const vec<C> y_row = exp_minus_quotient<C>(num, den, exp_near<C, true>(q, zero)) * inverse_scale;
      put<C>(ys.row(i), y_row, ys.streamed);
      store(out.average + i * L, average);
      if (logs) store(out.lse + i * L, log_shifted<C>(den * unit, scaled));
      proof.add(num, den, average);
      size = larger_size<C>(size, q);
    }
    const auto usable = differs<C>(load(cs.usable), zero);
    return xsimd::all((usable && proof.proven() && (size <= vec<C>(shared_gate<C>))) || tile.idle());
  }

  /// The same from the sums that the block holds, [num, den].
  void epilogue(index_t t0, index_t t1, query_results wanted, gate_inputs<C> gates, query_block<C>& block) const {
    constexpr index_t L = lanes<C>;
    epilogue(
        t0, t1, wanted, [&](index_t i) { return load(block.sums + i * 2 * L); },
        [&](index_t i) { return load(block.sums + i * 2 * L + L); }, gates, block);
  }

 private:
  /// Lane by lane, so that a lane's bits never depend on which neighbours share its vector. `q` is the query's where y
  /// is a quotient, and `to` its y.
  [[gnu::noinline]] void repair(index_t t, index_t i, const vec_mask<C>& proven, const vec<C>& den, const C* q, C* to,
                                query_block<C>& out) const {
    constexpr index_t L = lanes<C>;
    C flag[L], dens[L], gated[L];
    store(flag, xsimd::select(proven, vec<C>(C(1)), vec<C>(C(0))));
    store(dens, den);
    exact_row_result<C> exact;
    bool evaluated = false;
    for (index_t l = 0; l < tile.count; ++l) {
      if (flag[l] != C(0)) continue;
      const index_t at = i * L + l;
      if (dens[l] == C(0) && sees_nothing(t, l)) {
        if (q != nullptr) to[l] = q[l] == q[l] ? C(0) : q[l];
        out.average[at] = C(0);
        out.lse[at] = -std::numeric_limits<C>::infinity();
        out.inverse[at] = out.exponent[at] = out.base_hi[at] = out.base_lo[at] = C(0);
        continue;
      }
      if (!evaluated) {
        exact_stencil_row<C>(p, shape, tile, table.logs, load(cs.unit), t, exact);
        if (q != nullptr)
          store(gated, gated_average<C>(load(exact.num), load(exact.den), load(exact.inverse_scale), load(q)));
      }
      evaluated = true;
      if (q != nullptr) to[l] = gated[l];
      out.average[at] = exact.average[l];
      out.lse[at] = exact.lse[l];
      out.inverse[at] = exact.inverse[l];
      out.exponent[at] = exact.exponent[l];
      out.base_hi[at] = exact.base_hi[l];
      out.base_lo[at] = exact.base_lo[l];
    }
  }
};

/// Calls done(t0, t1, block) for all queries in order, in blocks within a row of the grid. `gates` are q of all
/// queries.
template <class C, class Done, class Ask>
inline void fold_queries(const query_fold<C>& fold, query_results wanted, const C* P, gate_inputs<C> gates,
                         box_complement<C>& rest, query_block<C>& block, const Done& done, const Ask& prefetch_into) {
  const auto epilogue = [&](index_t t0, index_t t1) {
    fold.epilogue(t0, t1, wanted, gates.from(t0), block);
    done(t0, t1, block);
  };
  fold_stencil_rows<C>(fold.shape, fold.table.weights, fold.table.outside, P, rest, block.sums, query_block<C>::most,
                       function_ref<void(index_t, index_t)>(epilogue), function_ref<void(index_t)>(prefetch_into));
}

}  // namespace aft::inline AFT_ISA::cpu_impl
