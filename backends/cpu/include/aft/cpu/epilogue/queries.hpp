// SPDX-License-Identifier: Apache-2.0
/// @file epilogue/queries.hpp  From the sums of a panel of queries to y, average, lse and state.
#pragma once

#include "../gemm/exact_query.hpp"
#include "../gemm/loop_nest.hpp"
#include "../math/gates.hpp"
#include "../softmax/proof.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Rows of a result that most calls do not ask for.
template <class C>
[[gnu::noinline]] inline void write_rows(const problem& p, const field& to, const std::array<index_t, 3>& grid,
                                         const lane_tile<C>& tile, index_t share, index_t r0, index_t r1,
                                         const C* from) {
  const lane_field<C> rows(to, grid, tile, share);
  const bool streamed = rows.streams_tiles(p);
  rows.write(r0, r1, from, streamed);
  if (!streamed) rows.prefetch(r1, r1 + tuning<C>::MR, p.Tq, true);
}

/// Sums of a panel's rows as they are: rows(n, take) calls take(r, num, den).
template <class C>
struct without_uniform {
  template <class Take>
  [[gnu::always_inline]] void rows(index_t n, const C* c, const Take& take) const {
    for (index_t r = 0; r < n; ++r) take(r, load(c + r * tuning<C>::NR), load(c + r * tuning<C>::NR + lanes<C>));
  }
};
/// Those to which what lies outside the dense columns is still to be added.
template <class C>
struct with_uniform {
  const row_scale<C>& rs;
  const uniform_sums<C>& sums;
  template <class Take>
  [[gnu::always_inline]] void rows(index_t n, const C* c, const Take& take) const {
    sums.for_rows(n, [&](index_t r, const vec<C>& num, const vec<C>& den) {
      const vec<C> weight(rs.uniform[r]);
      take(r, mul_add(weight, num, load(c + r * tuning<C>::NR)),
           mul_add(weight, den, load(c + r * tuning<C>::NR + lanes<C>)));
    });
  }
};

/// Where the averages and the lse of a panel go besides its y; null: not wanted.
template <class C>
struct saved_outputs {
  written_rows<C> average{}, lse{};
};

/// y[r] = average gate(q) of whole vectors in one go, with the bits of gated_average; `saves`: average and lse besides.
/// False where some lane of some row is not proven, some |q| is large, or, if it saves, some base is not 0: what the
/// results hold is then to be written again, from q as it was.
template <bool saves, class C, class T, class Sums>
[[gnu::noinline, gnu::flatten]] inline bool gated_rows_epilogue(index_t rows, const column_scale<C>& cs,
                                                                const row_scale<C>& rs, const Sums& sums, const C* c,
                                                                const T* q, index_t q_step, T* y, index_t y_step,
                                                                bool streamed, const saved_outputs<C>* saved) {
  constexpr index_t L = lanes<C>;
  const vec<C> inverse_scale = load(cs.inverse_scale), zero(C(0)), exponent = load(cs.exponent), unit = load(cs.unit);
  if constexpr (saves) {
    bool based = !xsimd::all(load(cs.base) == zero);
    for (index_t r = 0; r < rows; ++r) based = based || rs.base[r] != C(0);
    if (based) return false;
  }
  const saved_outputs<C> out = saves ? *saved : saved_outputs<C>{};
  proof_of_rows<C> proof(load(cs.floor));
  vec<C> size = zero;
  T formed[tuning<C>::MR * L];
  // Stored one by one between the divisions, lines do not wait for each other.
  const bool direct = y != q;
  T* const to = direct ? y : formed;
  const index_t to_step = direct ? y_step : L;
  const bool past = direct && streamed;
  sums.rows(
      rows, c, [&](index_t r, const vec<C>& num, const vec<C>& den) __attribute__((always_inline)) {
        const vec<C> gate = load_as<C>(q + r * q_step);
        const vec<C> o = exp_minus_quotient<C>(num, den, exp_near<C, true>(gate, zero)) * inverse_scale;
        if constexpr (std::is_same_v<T, C>) {
          put(to + r * to_step, o, past);
        } else {
          store_numbers_as<C>(to + r * to_step, o);  // a NaN that is proven is that of q, a T
        }
        if constexpr (!saves) proof.add(num, den, o);
        size = larger_size<C>(size, gate);
        if constexpr (saves) {
          const vec<C> average = (num / den) * inverse_scale;
          if (out.average.to != nullptr) put(out.average.row(r), average, out.average.streamed);
          if (out.lse.to != nullptr)
            put(out.lse.row(r), log_shifted<C>(den * (unit * vec<C>(rs.unit[r])), exponent + vec<C>(rs.exponent[r])),
                out.lse.streamed);
          proof.add(num, den, average);
        }
      });
  if (!xsimd::all(proof.proven() && (size <= vec<C>(shared_gate<C>)))) return false;
  for (index_t r = 0; !direct && r < rows; ++r) store_as<C>(y + r * y_step, load_as<C>(formed + r * L));
  return true;
}

/// The same for a lane tile of a call whose q and results can be used in place; false otherwise, too.
template <class C, class T>
inline bool epilogue_in_place(const problem& p, const lane_tile<C>& tile, const column_scale<C>& cs,
                              const row_scale<C>& rs, index_t r0, index_t r1, const C* c) {
  if (p.q.type != dtype_of<T> || p.y.type != dtype_of<T>) return false;
  const lane_field<C> queries(p.q, p.grid, tile, 1), results(p.y, p.grid, tile, 1);
  if (!queries.whole_rows() || !results.whole_rows()) return false;
  const index_t q_step = p.q.sx[2], y_step = p.y.sx[2];
  const T* const q = reinterpret_cast<const T*>(p.q.data) + queries.base + r0 * q_step;
  T* const y = reinterpret_cast<T*>(p.y.data) + results.base + r0 * y_step;
  const bool streamed = p.win.bounded && results.streams_tiles(p);
  queries.prefetch(r1, r1 + tuning<C>::MR, p.Tq);
  if (!streamed) results.prefetch(r1, r1 + tuning<C>::MR, p.Tq, true);
  if (!p.average.set && !p.lse.set)
    return gated_rows_epilogue<false, C>(r1 - r0, cs, rs, without_uniform<C>(), c, q, q_step, y, y_step, streamed,
                                         nullptr);
  saved_outputs<C> saved;
  const auto place = [&](const field& f, index_t share, written_rows<C>& to) {
    if (!f.set) return true;
    const lane_field<C> rows(f, p.grid, tile, share);
    if (f.type != dtype_of<C> || !rows.whole_rows()) return false;
    to = {reinterpret_cast<C*>(f.data) + rows.base + r0 * f.sx[2], f.sx[2], rows.streams_tiles(p)};
    if (!to.streamed) rows.prefetch(r1, r1 + tuning<C>::MR, p.Tq, true);
    return true;
  };
  if (!place(p.average, 1, saved.average) || !place(p.lse, p.d / p.hk, saved.lse)) return false;
  return gated_rows_epilogue<true, C>(r1 - r0, cs, rs, without_uniform<C>(), c, q, q_step, y, y_step, streamed, &saved);
}

/// The same for whichever type the data has.
template <class C>
inline bool epilogue_in_place(const problem& p, const lane_tile<C>& tile, const column_scale<C>& cs,
                              const row_scale<C>& rs, index_t r0, index_t r1, const C* c) {
  if (epilogue_in_place<C, C>(p, tile, cs, rs, r0, r1, c)) return true;
  if constexpr (std::is_same_v<C, float>) {
    if (epilogue_in_place<C, bfloat16>(p, tile, cs, rs, r0, r1, c)) return true;
  }
  // One by one, conversions are a tenth of this code and no faster here: 1.0 to 1.2 times the time of `full` and
  // `local` (SSE2, 2026-12).
  if constexpr (converts<half, C>) return epilogue_in_place<C, half>(p, tile, cs, rs, r0, r1, c);
  return false;
}

/// Finishes a panel: proves num / den or takes the exact row, then gates and stores. y may be q itself, so a row's q
/// is read before its y is written.
template <class C>
[[gnu::flatten]] inline void query_epilogue(const problem& p, const fold_plan<C>& plan, const row_state& state,
                                            const pair_weights<C>& weights, const lane_tile<C>& tile,
                                            const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                                            const C* c) {
  using k_ = exp_constants<C>;
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  constexpr index_t M = tuning<C>::MR;
  const index_t group = p.d / p.hk;
  const bool gated = p.gate_fn != gate::none && p.y.set;
  const bool logs = p.lse.set || state.set;
  // Average and sigmoid share a division. Whatever else is wanted: y must not depend on it.
  const bool quotient = gated && p.gate_fn == gate::sigmoid;
  const bool averages = !quotient || p.average.set;
  // The common calls. Their proof is that of all rows at once: a branch a row costs a third of the loop.
  if (quotient && !state.set && epilogue_in_place<C>(p, tile, cs, rs, r0, r1, c)) return;
  C q[M * L], y[M * L], average[M * L], lse[M * L], inverse[M * L], exponent[M * L], hi[M * L], lo[M * L];
  if (gated) {
    const lane_field<C> queries(p.q, p.grid, tile, 1);
    queries.read(r0, r1, q);
    queries.prefetch(r1, r1 + M, p.Tq);
  }
  const vec<C> zero(C(0)), one(C(1)), largest(k_::largest);
  const auto unused = tile.idle();
  const vec<C> inverse_scale = load(cs.inverse_scale), floor = load(cs.floor);
  const auto proof = [&](const vec<C>& num, const vec<C>& den, const vec<C>& o) {
    return proven_average<C>(num, den, o, floor);
  };
  const auto write_y = [&] {
    const lane_field<C> results(p.y, p.grid, tile, 1);
    const bool streamed = p.win.bounded && results.streams_tiles(p);
    results.write(r0, r1, y, streamed);
    if (!streamed) results.prefetch(r1, r1 + M, p.Tq, true);
  };
  for (index_t r = 0; r < r1 - r0; ++r) {
    const vec<C> num = load(c + r * N);
    const vec<C> den = load(c + r * N + L);
    vec<C> o = zero, out = zero;
    if (averages) {
      o = (num / den) * inverse_scale;
      store(average + r * L, o);
    }
    if (quotient) {
      out = gated_average<C>(num, den, inverse_scale, load(q + r * L));
      if (!averages) o = out;
    }
    const auto proven = proof(num, den, o) || unused;
    if (logs) {
      const vec<C> unit = load(cs.unit) * vec<C>(rs.unit[r]);
      const vec<C> safe = xsimd::select(den >= vec<C>(k_::proof) && den <= largest, den * unit, one);
      const vec<C> scaled = load(cs.exponent) + vec<C>(rs.exponent[r]);
      const half_sum<C> base = add_halves<C>(load(cs.base), vec<C>(rs.base[r]));
      store(lse + r * L, log_from_base<C>(base, safe, scaled, base_excess<C>));
      if (state.set) {
        if (xsimd::any(differs<C>(base.hi, zero))) state.beyond->store(true, std::memory_order_relaxed);
        const split_exp<C> parts = split_number<C>(safe);
        store(inverse + r * L, one / parts.mantissa);
        store(exponent + r * L, parts.exponent + scaled);
        store(hi + r * L, base.hi);
        store(lo + r * L, base.lo);
      }
    }
    if (!xsimd::all(proven)) {
      // Lane by lane, so that a lane's bits never depend on which neighbours share its vector.
      C flag[L];
      store(flag, xsimd::select(proven, one, zero));
      exact_row_result<C> exact;
      exact_row<C>(p, plan.g, weights.beside(rs.kept, false), tile, r0 + r, plan.paired, rs.edges, rs.unit[r], exact);
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
        const vec<C> again =
            gated_average<C>(load(exact.num), load(exact.den), load(exact.inverse_scale), load(q + r * L));
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
    if (to.set) write_rows<C>(p, to, grid, tile, share, r0, r1, from);
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

}  // namespace aft::inline AFT_ISA::cpu_impl
