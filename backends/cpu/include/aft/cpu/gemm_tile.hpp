// SPDX-License-Identifier: Apache-2.0
/// @file gemm_tile.hpp  The register tile: rows x two vectors of C += A P.
#pragma once

#include <limits>

#include "bf16_dot.hpp"
#include "tuning.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Lines that a tile asks for on its way, one a step: `length` of the first row of them, then as many of the next. In a
/// burst they would wait for each other, a tenth of a window's time.
template <class C>
struct asked_lines {
  static constexpr index_t most = 4;
  const C* first[most];
  index_t step[most];
  index_t length;

  /// The weights of another tile as deep as this one.
  static asked_lines of_weights(const C* a) {
    return {{a, a, a, a}, {tuning<C>::rows}, std::numeric_limits<index_t>::max()};
  }
};

/// c[r][0..1] (+)= sum_s a[s][r] p[s][0..1] for r < M. a has tuning::rows entries a step, p and c two vectors a row;
/// `paired`: each entry of a and p is a pair of bfloat16 and s counts pairs.
/// One fused chain a result, in the order of s: the bits do not depend on M. `ask` is brought to the second-level
/// cache.
template <class C, index_t M, bool paired>
inline void gemm_tile(index_t depth, const C* a, const C* p, C* c, bool add, const asked_lines<C>& ask) {
  constexpr index_t step = tuning<C>::rows;
  constexpr index_t width = tuning<C>::columns;
  vec<C> left[M];
  vec<C> right[M];
#pragma GCC unroll 14
  for (index_t r = 0; r < M; ++r) {
    left[r] = vec<C>(C(0));
    right[r] = vec<C>(C(0));
  }
  index_t s = 0;
  for (index_t part = 0; s < depth; ++part) {
    const C* line = ask.first[part];
    const index_t end = depth - s > ask.length ? s + ask.length : depth;
    for (; s < end; ++s, line += ask.step[part]) {
      __builtin_prefetch(line, 0, 2);
      const vec<C> p0 = load(p + s * width);
      const vec<C> p1 = load(p + s * width + lanes<C>);
      const C* const weights = a + s * step;
#pragma GCC unroll 14
      for (index_t r = 0; r < M; ++r) {
        const vec<C> weight(weights[r]);
        if constexpr (paired) {
          left[r] = add_pairs(weight, p0, left[r]);
          right[r] = add_pairs(weight, p1, right[r]);
        } else {
          left[r] = mul_add(weight, p0, left[r]);
          right[r] = mul_add(weight, p1, right[r]);
        }
      }
    }
  }
#pragma GCC unroll 14  // else the accumulators go to the stack first
  for (index_t r = 0; r < M; ++r) {
    C* const out = c + r * width;
    if (add) {
      left[r] = left[r] + load(out);
      right[r] = right[r] + load(out + lanes<C>);
    }
    store(out, left[r]);
    store(out + lanes<C>, right[r]);
  }
}

/// The tile of `rows` rows, by the smallest kernel that covers them. Panels are cut evenly, so heights from half the
/// full one on are the common ones; below they occur in short sequences and beside windows only.
template <class C, bool paired, index_t M>
inline void gemm_rows(index_t rows, index_t depth, const C* a, const C* p, C* c, bool add, const asked_lines<C>& ask) {
  constexpr index_t most = tuning<C>::rows;
  constexpr index_t smaller = M > most / 2 ? M - 1 : M / 2;
  if constexpr (M > 1) {
    if (rows <= smaller) return gemm_rows<C, paired, smaller>(rows, depth, a, p, c, add, ask);
  }
  gemm_tile<C, M, paired>(depth, a, p, c, add, ask);
}

/// gemm_rows for any height, once in a program.
template <class C, bool paired = false>
[[gnu::noinline, gnu::flatten]] inline void gemm_panel(index_t rows, index_t depth, const C* a, const C* p, C* c,
                                                       bool add, const asked_lines<C>& ask) {
  gemm_rows<C, paired, tuning<C>::rows>(rows, depth, a, p, c, add, ask);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
