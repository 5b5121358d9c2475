// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/gemm.hpp  dw[t,s] = sum_{b, c in head} a[t,s,c] g[t,c] (v[s,c] - o[t,c]), tile by tile.
///
/// With X[t] = exp(kappa - lse) and Y[s] = exp(k - kappa) per column (b, c) it is exp(w) times a matrix product over
/// those columns, [X g | -X g o] [Y v | Y]^T. Rows far from 1 are divided by a power of two; what multiplies the
/// product at the end must stay below 2^40, else the pair is summed by its definition.
#pragma once

#include "../gemm/batch.hpp"
#include "../gemm/exact_key.hpp"
#include "../gemm/microkernel.hpp"
#include "../softmax/proof.hpp"
#include "../tensor/visible_keys.hpp"
#include "pack.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// One pair by its definition, over the columns of a lane tile.
template <class C>
[[gnu::noinline]] inline C exact_tile(const gradient_inputs& in, const lane_tile<C>& tile, index_t t, index_t s,
                                      C weight) {
  constexpr index_t L = lanes<C>;
  const backward_problem& p = *in.p;
  saved_rows<C, 1> up;
  C k[L], v[L], lane[L];
  key_reader<C>(p, tile).read(s, s + 1, k, v);
  up.read(in, tile, t, t + 1);
  store(lane, exact_pair_terms<C>(up, 0, load(k), vec<C>(weight), load(v)).dk);
  C sum = C(0);
  for (index_t l = 0; l < tile.count; ++l) sum += lane[l];
  return sum;
}
/// The same over the columns [n0, n1).
template <class C>
[[gnu::noinline]] inline C exact_pair(const gradient_inputs& in, const gradient_columns<C>& columns, index_t n0,
                                      index_t n1, index_t t, index_t s, C weight) {
  C sum = C(0);
  for (index_t n = n0; n < n1; n += lanes<C>) sum += exact_tile<C>(in, columns.tile(n, n1), t, s, weight);
  return sum;
}

/// sums[r][s] += exp(w) 2^rho c[r][s], scaled back, for one panel and key tile, with the weights of one group of
/// columns.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void add_weighted_tile(const gradient_inputs& in, const pair_weights<C>& weights,
                                                              const gradient_columns<C>& columns, index_t n0,
                                                              index_t n1, index_t r0, index_t r1, index_t s0,
                                                              index_t s1, const C* rho, const C* c,
                                                              const gradient_scale<C>& scale, C* sums) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const backward_problem& p = *in.p;
  const vec<C> zero(C(0)), one(C(1)), back(scale.back), lower(scale.lower), range(exp_constants<C>::range);
  const vec<C> near_range(exp_constants<C>::range / 8);
  C rows[tuning<C>::MR * N];
  weights.rows(r0, r1, s0, s1, rows, N);
  for (index_t r = r0; r < r1; ++r) {
    C* const w = rows + (r - r0) * N;
    for (index_t s = s1 - s0; s < N; ++s) w[s] = -inf;
    // A pair outside the window is seen with bias 0, which is no parameter and has no gradient.
    for (index_t s = s0; p.win.bounded && s < s1; ++s)
      if (s < r - p.win.before || s > r + p.win.after) w[s - s0] = -inf;
    for (index_t x = 0; x < N; x += L) {
      const vec<C> weight = load(w + x);
      const auto hidden = weight == vec<C>(-inf);
      const scaled_factor<C> e(weight, vec<C>(rho[r - r0]), exp_constants<C>::range);
      const vec<C> products = load(c + (r - r0) * N + x);
      const vec<C> dw = e.factor * products * back * lower;
      // e^w is below 2^-5909 there, beside 2^512 and numbers of the type. Slopes as ALiBi has them reach that on long
      // sequences, where every pair is one by its definition else.
      const auto nothing = hidden || (weight < -range && vec<C>(rho[r - r0]) < near_range && is_finite<C>(products));
      const auto proven = nothing || (e.within && is_finite<C>(dw));
      C* const out = sums + (r - r0) * N + x;
      C add[L];
      store(add, xsimd::select(nothing, zero, dw));
      if (!xsimd::all(proven)) {
        C flag[L];
        store(flag, xsimd::select(proven, one, zero));
        for (index_t l = 0; l < L; ++l)
          if (flag[l] == C(0)) add[l] = exact_pair<C>(in, columns, n0, n1, r, s0 + x + l, w[x + l]);
      }
      store(out, load(out) + load(add));
    }
  }
}

/// Takes a finished tile: sink(r0, r1, s0, s1, dw).
template <class C>
using gradient_sink = function_ref<void(index_t, index_t, index_t, index_t, const C*)>;

/// Is told of the rows [r0, r1) of a block, before its first tile and after its last one.
using block_edge = function_ref<void(index_t, index_t)>;

/// Runs one batch item over all its tiles and hands every finished tile to the sink. With
/// `by_keys` a key tile belongs to one thread for all its panels, in their order; else a panel for all its key tiles.
template <class C>
inline void gradient_tiles(const gradient_inputs& in, const bias_gradient_plan<C>& plan,
                           const staged_factors<C>& factors, const gradient_columns<C>& columns, index_t h, index_t b,
                           bool by_keys, const gradient_sink<C>& sink, const block_edge& begin, const block_edge& end) {
  constexpr index_t M = tuning<C>::MR;
  constexpr index_t N = tuning<C>::NR;
  const index_t chunk = plan.chunk, steps = plan.steps;
  const backward_problem& p = *in.p;
  const auto end_of = [&](index_t panel) { return (panel + 1) * M < p.Tq ? (panel + 1) * M : p.Tq; };
  // Only pairs inside the window have a bias, and of those only the past under causality.
  const auto touches = [&](index_t panel, index_t s0, index_t s1) {
    const index_t r0 = panel * M;
    const index_t r1 = end_of(panel);
    if (p.causal && s0 >= r1 + p.first_query) return false;
    return !p.win.bounded || (s0 < r1 + p.win.after && s1 > r0 - p.win.before);
  };
  for (index_t p0 = 0; p0 < plan.panels; p0 += plan.block) {
    const index_t p1 = min_of(p0 + plan.block, plan.panels);
    begin(p0 * M, end_of(p1 - 1));
    parallel_for(p1 - p0, plan.threads, [&](index_t i, int) {
      for (index_t group = 0, n0 = 0; n0 < columns.count; ++group, n0 += columns.per_group) {
        pack_gradient_rows<C>(in, plan, columns, n0, n0 + columns.per_group, (p0 + i) * M, end_of(p0 + i),
                              plan.a + (i * plan.depth + n0) * steps * M, plan.rho + (i * plan.groups + group) * M);
      }
    });
    const auto run = [&](index_t q0, index_t q1, index_t j0, index_t j1, int thread) {
      const auto first_key = [&](index_t j) { return j * N; };
      const auto last_key = [&](index_t j) { return (j + 1) * N < p.Tk ? (j + 1) * N : p.Tk; };
      const auto active = [&](index_t q, index_t j) { return touches(q, first_key(j), last_key(j)); };
      bool any = false;
      for (index_t q = q0; q < q1; ++q) any = any || touches(q, first_key(j0), last_key(j1 - 1));
      if (!any) return;
      C* const packed = plan.columns.of(thread);
      C* const tiles = plan.tiles.of(thread);
      C* const sums = plan.sums.of(thread);
      const auto at = [&](index_t q, index_t j) { return ((q - q0) * plan.together + j - j0) * M * N; };
      for (index_t x = 0; x < (q1 - q0) * plan.together * M * N; ++x) sums[x] = C(0);
      for (index_t group = 0, g0 = 0; g0 < columns.count; ++group, g0 += columns.per_group) {
        const index_t g1 = g0 + columns.per_group;
        const pair_weights<C> weights(p, factors, plan.groups > 1 ? group : b, h);
        for (index_t n0 = g0; n0 < g1; n0 += chunk) {
          const index_t n1 = min_of(n0 + chunk, g1);
          for (index_t j = j0; j < j1; ++j)
            pack_gradient_columns<C>(p, plan, columns, n0, n1, first_key(j), last_key(j),
                                     packed + (j - j0) * steps * chunk * N);
          for (index_t q = q0; q < q1; ++q) {
            for (index_t j = j0; j < j1; ++j) {
              if (!active(q, j)) continue;
              const C* const a = plan.a + ((q - p0) * plan.depth + n0) * steps * M;
              const C* const columns_of = packed + (j - j0) * steps * chunk * N;
              const auto lines =
                  prefetched_lines<C>::of_weights(j == j0 && q + 1 < q1 ? a + plan.depth * steps * M : a);
              const index_t rows = end_of(q) - q * M, count = steps * (n1 - n0);
              if constexpr (has_bf16_dot<C>) {
                if (plan.paired) {
                  gemm_panel<C, true>(rows, count, a, columns_of, tiles + at(q, j), n0 > g0, lines);
                  continue;
                }
              }
              gemm_panel<C>(rows, count, a, columns_of, tiles + at(q, j), n0 > g0, lines);
            }
          }
        }
        for (index_t q = q0; q < q1; ++q) {
          // A tile takes a line or two of each row, which the hardware does not foresee.
          if (q + 1 < q1) weights.prefetch((q + 1) * M, end_of(q + 1), first_key(j0), last_key(j1 - 1));
          for (index_t j = j0; j < j1; ++j) {
            if (!active(q, j)) continue;
            add_weighted_tile<C>(in, weights, columns, g0, g1, q * M, end_of(q), first_key(j), last_key(j),
                                 plan.rho + ((q - p0) * plan.groups + group) * M, tiles + at(q, j), plan.scale,
                                 sums + at(q, j));
          }
        }
      }
      for (index_t j = j0; j < j1; ++j)
        for (index_t q = q0; q < q1; ++q)
          if (active(q, j)) sink(q * M, end_of(q), first_key(j), last_key(j), sums + at(q, j));
    };
    const auto until = [&](index_t j) { return min_of(j + plan.together, plan.key_tiles); };
    if (by_keys) {
      parallel_for((plan.key_tiles + plan.together - 1) / plan.together, plan.threads,
                   [&](index_t i, int thread) { run(p0, p1, i * plan.together, until(i * plan.together), thread); });
    } else {
      constexpr index_t few = 8;  // panels an item: enough rows to pay for packing the keys again
      parallel_for(ceil_div(p1 - p0, few), plan.threads, [&](index_t i, int thread) {
        const index_t q0 = p0 + i * few;
        const index_t q1 = min_of(q0 + few, p1);
        for (index_t j = 0; j < plan.key_tiles; j += plan.together) run(q0, q1, j, until(j), thread);
      });
    }
    end(p0 * M, end_of(p1 - 1));
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
