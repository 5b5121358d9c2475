// SPDX-License-Identifier: Apache-2.0
/// @file weight_panel.hpp  A panel of rows of exp(w), packed for the register tile.
#pragma once

#include <limits>

#include "bf16_dot.hpp"
#include "exp.hpp"
#include "tuning.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// What the weights of a row were divided by: exp(base) * 2^exponent. `outside` is the weight of bias 0.
template <class C>
struct row_scale {
  C exponent[tuning<C>::rows];
  C base[tuning<C>::rows];
  C outside[tuning<C>::rows];
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
/// panel[s][row]; `paired`: of pairs of bfloat16, panel[s / 2][row]. `zero_outside` says that pairs of bias 0 exist
/// beyond the n, so the scale must cover them. ld is at least n rounded up to a vector, or to two if paired.
template <class C>
[[gnu::flatten]] inline void pack_weight_panel(index_t rows, index_t n, C* log_weights, index_t ld, bool zero_outside,
                                               bool paired, C* panel, row_scale<C>& scale) {
  constexpr index_t L = lanes<C>;
  constexpr index_t M = tuning<C>::rows;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const index_t whole = paired ? 2 * L : L;
  const index_t padded = (n + whole - 1) / whole * whole;
  for (index_t r = 0; r < rows; ++r) {
    C* const w = log_weights + r * ld;
    for (index_t s = n; s < padded; ++s) w[s] = -inf;
    vec<C> most(zero_outside ? C(0) : -inf);
    for (index_t s = 0; s < padded; s += L) most = max_ignoring_nan<C>(most, load(w + s));
    C lane[L];
    store(lane, most);
    C top = lane[0];
    for (index_t l = 1; l < L; ++l) top = lane[l] > top ? lane[l] : top;
    const bool empty = top == -inf;
    const bool beyond = !empty && (top > exp_constants<C>::range || top < -exp_constants<C>::range);
    const C base = beyond ? top : C(0);
    C exponents[L];
    store(exponents, exponent_of<C>(vec<C>(empty || beyond ? C(0) : top)));
    scale.base[r] = base;
    scale.exponent[r] = exponents[0];
    const vec<C> shift(exponents[0]);
    const vec<C> origin(base);
    for (index_t s = 0; s < padded; s += L) store(w + s, exp_scaled<C>(load(w + s) - origin, shift));
    if constexpr (has_bf16_dot<C>) {
      if (paired) pair_up(w, padded);
    }
    store(lane, exp_scaled<C>(vec<C>(C(0)) - origin, shift));
    scale.outside[r] = lane[0];
  }
  for (index_t r = rows; r < M; ++r) {
    scale.base[r] = C(0);
    scale.exponent[r] = C(0);
    scale.outside[r] = C(0);
  }
  transpose_rows<C>(log_weights, ld, rows, paired ? (n + 1) / 2 : n, panel);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
