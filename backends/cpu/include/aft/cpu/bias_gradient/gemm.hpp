// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/gemm.hpp  dw[t,s] = sum_{b, c in head} a[t,s,c] g[t,c] (v[s,c] - o[t,c]), tile by tile.
///
/// With X[t] = exp(kappa - lse) and Y[s] = exp(k - kappa) per column (b, c) it is exp(w) times a matrix product over
/// those columns, [X g | -X g o] [Y v | Y]^T. Each row is divided by its largest power of two; what multiplies the
/// product at the end must stay below 2^40, else the pair is summed by its definition.
#pragma once

#include "../gemm/batch.hpp"
#include "../gemm/exact_key.hpp"
#include "../gemm/microkernel.hpp"
#include "../gemm/pack_keys.hpp"
#include "../simd/transpose.hpp"
#include "../softmax/proof.hpp"
#include "../tensor/visible_keys.hpp"
#include "scale.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// One head's columns (b, c) cut into chunks; a chunk never holds two batch elements when their masks differ.
template <class C>
struct gradient_columns {
  index_t b0 = 0, c0 = 0, dh = 1;  ///< column n is (b0 + n / dh, c0 + n % dh)
  index_t count = 0;               ///< columns in all
  index_t per_group = 0;           ///< columns that share one weight per pair

  lane_tile<C> tile(index_t n, index_t end) const { return make_lane_tile<C>(b0, c0, dh, n, end); }
};

/// Buffers and the exponent kappa of every column, ready before anything is written.
template <class C>
struct bias_gradient_plan {
  static constexpr index_t M = tuning<C>::MR;
  static constexpr index_t N = tuning<C>::NR;
  static constexpr index_t most_together = 4;

  int threads;
  bool paired;    ///< a column's two entries are a pair of bfloat16
  index_t steps;  ///< of the register tile that a column takes
  // Columns packed at once: they are one depth block, whose part of a weight panel stays in the first-level cache
  // while `together` key tiles use it. Packing 1024 columns of floats for one tile took 1.6 times as long.
  index_t chunk;
  index_t panels, key_tiles, block, depth, groups, together;
  gradient_scale<C> scale;  ///< known when the gradients are
  index_t row_keys = 0;     ///< keys of the rows in `rows`
  C* rows = nullptr;        ///< rows of dw of a block, of a gradient that is handed out row by row
  C* kappa;
  C* a;
  C* rho;
  per_thread<C> columns, tiles, sums;

  bias_gradient_plan(const backward_problem& p, bool batched, bool pairs, int wanted, scratch& memory)
      : threads(wanted), paired(pairs), steps(pairs ? 1 : 2), chunk(tuning<C>::KC / steps) {
    panels = ceil_div(p.Tq, M);
    key_tiles = ceil_div(p.Tk, N);
    const index_t dh = p.d / p.bias.heads;
    const bool per_batch = !batched && p.B > 1 && p.pair_mask() && p.mask_sb != 0;
    depth = dh * (batched ? 1 : p.B);
    groups = per_batch ? p.B : 1;
    const index_t panel_bytes = steps * depth * M * static_cast<index_t>(sizeof(C));
    block = 2 * tuning<C>::weight_bytes / (panel_bytes > 0 ? panel_bytes : 1);
    block = min_of(block, tuning<C>::MC_panels);
    block = block < 1 ? 1 : min_of(block, panels);
    together = key_tiles / (2 * threads);
    together = together < 1 ? 1 : min_of(together, most_together);
    const index_t fits = tuning<C>::MC_bytes / (threads * together * M * N * static_cast<index_t>(sizeof(C)));
    if (block > fits) block = max_of(fits, 1);
    if (p.dbias.kind == bias_kind::generated) {
      const auto keys = [&](index_t b) {
        return p.win.bounded ? min_of(p.Tk, b * M + max_of(p.win.before + p.win.after, 0)) : p.Tk;
      };
      while (block > 1 && block * M * keys(block) * static_cast<index_t>(sizeof(C)) > tuning<C>::weight_bytes) --block;
      row_keys = keys(block);
      rows = memory.take<C>(block * M * row_keys);
    }
    kappa = memory.take<C>(p.B * p.d);
    a = memory.take<C>(block * steps * depth * M);
    rho = memory.take<C>(block * groups * M);
    columns = memory.take_each<C>(together * steps * chunk * N, threads);
    tiles = memory.take_each<C>(together * block * M * N, threads);
    sums = memory.take_each<C>(together * block * M * N, threads);
  }
};

/// kappa of each (b, c): the exponent of its largest key, NaN where that lies beyond exp_constants::range.
template <class C>
inline void find_kappa(const backward_problem& p, const bias_gradient_plan<C>& plan) {
  constexpr index_t L = lanes<C>;
  const index_t tiles = ceil_div(p.d, L);
  parallel_for(p.B * tiles, plan.threads, [&](index_t item, int) {
    const lane_tile<C> tile = make_lane_tile<C>(item / tiles, 0, p.d, item % tiles * L, p.d);
    const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
    key_range<C> range;
    C k[column_chunk * L], scales[L];
    for (index_t s0 = 0; s0 < p.Tk; s0 += column_chunk) {
      const index_t s1 = min_of(s0 + column_chunk, p.Tk);
      keys.read(s0, s1, k, -std::numeric_limits<C>::infinity());
      hide_keys(p, tile, s0, s1, k);
      for (index_t s = 0; s < s1 - s0; ++s) range.top = max_ignoring_nan<C>(range.top, load(k + s * L));
    }
    const column_scale<C> cs = key_scale<C>(range, scales);
    for (index_t l = 0; l < tile.count; ++l) {
      plan.kappa[tile.b[l] * p.d + tile.c[l]] =
          cs.base[l] == C(0) ? cs.exponent[l] : std::numeric_limits<C>::quiet_NaN();
    }
  });
}

/// Those of a lane tile.
template <class C>
inline vec<C> kappa_of(const backward_problem& p, const bias_gradient_plan<C>& plan, const lane_tile<C>& tile) {
  C kappa[lanes<C>] = {};
  for (index_t l = 0; l < tile.count; ++l) kappa[l] = plan.kappa[tile.b[l] * p.d + tile.c[l]];
  return load(kappa);
}

/// out[l step + r] = from[r][l] for l < count, 0 for rows <= r < M. clang made gathers of the loops, a third of
/// pack_gradient_rows.
template <class C>
inline void turn_panel_rows(const C* from, index_t rows, index_t count, index_t step, C* out) {
  constexpr index_t L = lanes<C>;
  constexpr index_t M = tuning<C>::MR;
  if constexpr (turns_rows<C>) {
    for (index_t first = 0; first < M; first += L) {
      vec<C> block[L];
      AFT_UNROLL(16)
      for (index_t i = 0; i < L; ++i) {
        // rows is M at the most, which GCC does not know: it warns of rows behind the array.
        const index_t r = first + i;
        block[i] = r < M && r < rows ? load(from + r * L) : vec<C>(C(0));
      }
      transpose(block);
      for (index_t l = 0; l < count; ++l) store_tile_rows<M, C>(out + l * step + first, block[l]);
    }
    return;
  }
  for (index_t l = 0; l < count; ++l, out += step) {
    for (index_t r = 0; r < rows; ++r) out[r] = from[r * L + l];
    for (index_t r = rows; r < M; ++r) out[r] = C(0);
  }
}

/// a[2n][r] = X g, a[2n + 1][r] = -X g o for the rows of a panel, or a[n][r] the pair of both, the second formed from
/// what the first was rounded to. X is divided by 2^rho[r]. False: some row's largest X is then far from 1, and what
/// rho would bring it there stands in its place.
template <class C>
[[gnu::noinline, gnu::flatten]] inline bool form_gradient_rows(const gradient_inputs& in,
                                                               const bias_gradient_plan<C>& plan,
                                                               const gradient_columns<C>& columns, index_t n0,
                                                               index_t n1, index_t r0, index_t r1, C* a, C* rho) {
  constexpr index_t L = lanes<C>;
  constexpr index_t M = tuning<C>::MR;
  const backward_problem& p = *in.p;
  saved_rows<C, M> up;
  C xg[M * L], xgo[M * L];
  const vec<C> nan(std::numeric_limits<C>::quiet_NaN()), by(plan.scale.by), lift(plan.scale.lift);
  const vec<C> zero(C(0)), none(-std::numeric_limits<C>::infinity());
  vec<C> most[M];
  for (index_t r = 0; r < M; ++r) most[r] = none;
  for (index_t n = n0; n < n1; n += L) {
    const lane_tile<C> tile = columns.tile(n, n1);
    up.read(in, tile, r0, r1);
    const vec<C> centre = kappa_of<C>(p, plan, tile);
    for (index_t r = 0; r < r1 - r0; ++r) {
      const vec<C> inverse = load(up.inverse + r * L);
      const vec<C> e = centre - load(up.exponent + r * L);
      const auto empty = inverse == zero;
      most[r] = xsimd::select(!empty && (e > most[r]), e, most[r]);
      vec<C> x = inverse * pow2<C>(e - vec<C>(rho[r]));
      // Lanes whose logits lie beyond the range send the whole row to the definition.
      x = xsimd::select(differs<C>(centre, centre) || differs<C>(load(up.base_hi + r * L), zero), nan, x);
      vec<C> g = xsimd::select(empty, zero, x * (load(up.g + r * L) * by));
      if constexpr (has_bf16_dot<C>) {
        if (plan.paired) g = round_to_bf16(g);
      }
      const vec<C> go = xsimd::select(empty, zero, -(g * (load(up.o + r * L) * lift)));
      if constexpr (has_bf16_dot<C>) {
        if (plan.paired) {
          store(xg + r * L, join_pairs(g, round_to_bf16(go)));
          continue;
        }
      }
      store(xg + r * L, g);
      store(xgo + r * L, go);
    }
    C* const to = a + plan.steps * (n - n0) * M;
    turn_panel_rows<C>(xg, r1 - r0, tile.count, plan.steps * M, to);
    if (!plan.paired) turn_panel_rows<C>(xgo, r1 - r0, tile.count, plan.steps * M, to + M);
  }
  bool ordinary = true;
  for (index_t r = 0; r < r1 - r0; ++r) {
    const C top = largest_lane<C>(most[r]);
    const bool seen = top > -std::numeric_limits<C>::infinity();
    if (seen && !(top - rho[r] >= C(-24) && top - rho[r] <= C(24))) {
      rho[r] = top;
      ordinary = false;
    }
  }
  return ordinary;
}

/// The same with rho chosen: 0 for rows of ordinary size, which so are read once. Reading all of them before, for their
/// largest X, took 0.04 of full_backward on 32 x 197 x 384 (bfloat16, one thread, Zen 4, 2026-11).
template <class C>
inline void pack_gradient_rows(const gradient_inputs& in, const bias_gradient_plan<C>& plan,
                               const gradient_columns<C>& columns, index_t n0, index_t n1, index_t r0, index_t r1, C* a,
                               C* rho) {
  for (index_t r = 0; r < tuning<C>::MR; ++r) rho[r] = C(0);
  if (!form_gradient_rows<C>(in, plan, columns, n0, n1, r0, r1, a, rho))
    form_gradient_rows<C>(in, plan, columns, n0, n1, r0, r1, a, rho);
}

/// out[2n][s] = Y v, out[2n + 1][s] = Y for the keys of a tile, or out[n][s] the pair of both; 0 for hidden keys and
/// past the end.
template <class C>
[[gnu::noinline, gnu::flatten]] inline void pack_gradient_columns(const backward_problem& p,
                                                                  const bias_gradient_plan<C>& plan,
                                                                  const gradient_columns<C>& columns, index_t n0,
                                                                  index_t n1, index_t s0, index_t s1, C* out) {
  constexpr index_t L = lanes<C>;
  constexpr index_t N = tuning<C>::NR;
  constexpr C inf = std::numeric_limits<C>::infinity();
  C k[N * L], v[N * L];
  const vec<C> zero(C(0)), lift(plan.scale.lift);
  for (index_t n = n0; n < n1; n += L) {
    const lane_tile<C> tile = columns.tile(n, n1);
    key_reader<C>(p, tile).read(s0, s1, k, v);
    const vec<C> centre = kappa_of<C>(p, plan, tile);
    for (index_t s = 0; s < s1 - s0; ++s) {
      const vec<C> key = load(k + s * L);
      const auto seen = differs<C>(key, vec<C>(-inf));
      // A key beyond the range with kappa within it is far below and rightly 0; NaN kappa makes NaN.
      vec<C> y = xsimd::select(seen, weight_scaled<C>(key, centre) + (centre - centre), zero);
      if constexpr (has_bf16_dot<C>) {
        if (plan.paired) y = round_to_bf16(y);
      }
      const vec<C> yv = xsimd::select(seen, y * (load(v + s * L) * lift), zero);
      if constexpr (has_bf16_dot<C>) {
        if (plan.paired) {
          store(v + s * L, join_pairs(round_to_bf16(yv), y));
          continue;
        }
      }
      store(k + s * L, y);
      store(v + s * L, yv);
    }
    for (index_t s = s1 - s0; s < N; ++s) {
      store(k + s * L, zero);
      store(v + s * L, zero);
    }
    C* const line = out + plan.steps * (n - n0) * N;
    for (index_t s = 0; s < N; s += L) {
      transpose_columns<C>(v + s * L, L, L, tile.count, line + s, plan.steps * N);
      if (!plan.paired) transpose_columns<C>(k + s * L, L, L, tile.count, line + N + s, plan.steps * N);
    }
  }
}

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
