// SPDX-License-Identifier: Apache-2.0
/// @file weight_panel.hpp  A panel of rows of exp(w), packed for the register tile.
#pragma once

#include <limits>

#include "bf16_dot.hpp"
#include "exp.hpp"
#include "panel_stairs.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// What the weights of a panel's rows were divided by: exp(base) * 2^exponent. `outside` is the weight of bias 0, or 0
/// where no pair has it; `ends` those of the panel's tiles.
template <class C>
struct row_scale {
  C exponent[tuning<C>::rows];
  C base[tuning<C>::rows];
  C outside[tuning<C>::rows];
  tile_ends ends;
};

/// panel[s][r] = from[r * ld + s] for s < n, M entries a step; 0 for r >= rows. Reads rows up to a whole vector.
template <class C>
inline void transpose_rows(const C* from, index_t ld, index_t rows, index_t n, C* panel) {
  constexpr index_t M = tuning<C>::rows;
#if defined(__AVX512F__)
  if constexpr (sizeof(vec<C>) == 64 && sizeof(C) == 4) {
    for (index_t s = 0; s < n; s += lanes<C>) {
      vec<C> block[lanes<C>];
#pragma GCC unroll 16
      for (index_t r = 0; r < lanes<C>; ++r) block[r] = r < rows ? load(from + r * ld + s) : vec<C>(C(0));
      transpose(block);
      const index_t steps = n - s < lanes<C> ? n - s : lanes<C>;
      for (index_t i = 0; i < steps; ++i) store_first<M>(panel + (s + i) * M, block[i]);
    }
    return;
  }
#endif
  for (index_t s = 0; s < n; ++s) {
    C* const out = panel + s * M;
    for (index_t r = 0; r < rows; ++r) out[r] = from[r * ld + s];
    for (index_t r = rows; r < M; ++r) out[r] = C(0);
  }
}

/// Turns `rows` rows of log-weights (stride ld, n each) into weights in place and writes them transposed,
/// panel[s][row]; `paired`: of pairs of bfloat16, panel[s / 2][row]. `zero_outside` says that pairs of bias 0 are
/// summed apart, so the scale must cover them. ld is at least n rounded up to a vector, or to two if paired.
template <class C>
[[gnu::flatten]] inline void pack_weight_panel(index_t rows, index_t n, C* log_weights, index_t ld, bool zero_outside,
                                               bool paired, C* panel, row_scale<C>& scale) {
  constexpr index_t L = lanes<C>;
  constexpr index_t M = tuning<C>::rows;
  constexpr C inf = std::numeric_limits<C>::infinity();
  constexpr index_t R = (M + L - 1) / L * L;
  const index_t whole = paired ? 2 * L : L;
  const index_t padded = (n + whole - 1) / whole * whole;
  // Rows first lane by lane, then as lanes: what a row needs besides its weights is formed for a vector of rows.
  C top[R], base[R], exponent[R], outside[R];
  for (index_t r = 0; r < R; ++r) top[r] = -inf;
  for (index_t r = 0; r < rows; ++r) {
    C* const w = log_weights + r * ld;
    for (index_t s = n; s < padded; ++s) w[s] = -inf;
    vec<C> most(zero_outside ? C(0) : -inf);
    for (index_t s = 0; s < padded; s += L) most = max_ignoring_nan<C>(most, load(w + s));
    top[r] = largest_lane<C>(most);
  }
  const vec<C> zero(C(0)), none(-inf), range(exp_constants<C>::range), lowest(exp_constants<C>::lowest);
  for (index_t r = 0; r < R; r += L) {
    const vec<C> t = load(top + r);
    const auto empty = t == none;
    const auto beyond = !empty && ((t > range) || (t < lowest));
    const vec<C> origin = xsimd::select(beyond, t, zero);
    const vec<C> shift = exponent_of<C>(xsimd::select(empty || beyond, zero, t));
    store(base + r, origin);
    store(exponent + r, shift);
    store(outside + r, exp_scaled<C>(zero - origin, shift));
  }
  for (index_t r = 0; r < M; ++r) {
    scale.base[r] = base[r];
    scale.exponent[r] = exponent[r];
    scale.outside[r] = zero_outside && r < rows ? outside[r] : C(0);
  }
  for (index_t r = 0; r < rows; ++r) {
    C* const w = log_weights + r * ld;
    const vec<C> origin(base[r]), shift(exponent[r]);
    for (index_t s = 0; s < padded; s += L) store(w + s, exp_scaled<C>(load(w + s) - origin, shift));
    if constexpr (has_bf16_dot<C>) {
      if (paired) pair_up(w, padded);
    }
  }
  transpose_rows<C>(log_weights, ld, rows, paired ? (n + 1) / 2 : n, panel);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
