// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/pack.hpp  Packs both sides of the product that gives dw, see bias_gradient/gemm.hpp: rows of
/// queries [X g | -X g o] and columns of keys [Y v | Y], each entry a float or both of a column a pair of bfloat16.
#pragma once

#include <limits>

#include "../gemm/pack_keys.hpp"
#include "../simd/bf16_dot.hpp"
#include "../simd/transpose.hpp"
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
    const column_scale<C> cs = key_scale<C>(range, first_key<C>(), scales);
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
      for (index_t l = 0; l < count; ++l) store_tile_rows<M>(out + l * step, first, block[l]);
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

}  // namespace aft::inline AFT_ISA::cpu_impl
