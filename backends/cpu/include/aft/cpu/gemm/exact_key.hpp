// SPDX-License-Identifier: Apache-2.0
/// @file gemm/exact_key.hpp  The gradients of one key by their definition, for lanes whose fast result is not proven.
#pragma once

#include "../softmax/exact_weight.hpp"
#include "../softmax/saved_rows.hpp"
#include "bias_rows.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// dv and dk of key s for the lanes of `tile` (design: dv = sum_t a g, dk = sum_t a g (v - o)).
template <class C>
[[gnu::noinline]] inline void exact_key(const gradient_inputs& in, const pair_weights<C>& weights,
                                        const lane_tile<C>& tile, index_t s, const vec<C>& key, const vec<C>& value,
                                        C* dv, C* dk) {
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const backward_problem& p = *in.p;
  saved_rows<C, chunk> up;
  C w[chunk];
  const vec<C> zero(C(0));
  vec<C> a_sum(zero), b_sum(zero), a_block(zero), b_block(zero);
  for (index_t t0 = 0; t0 < p.Tq; t0 += chunk) {
    const index_t t1 = min_of(t0 + chunk, p.Tq);
    weights.columns(s, s + 1, t0, t1, w, chunk);
    up.read(in, tile, t0, t1);
    for (index_t t = 0; t < t1 - t0; ++t) {
      if (w[t] == -inf) continue;
      const vec<C> inverse = load(up.inverse + t * L);
      const exact_factor<C> a = exact_weight<C>(key, vec<C>(w[t]), inverse, load(up.exponent + t * L),
                                                load(up.base_hi + t * L), load(up.base_lo + t * L));
      const auto empty = inverse == zero;
      const vec<C> g = load(up.g + t * L);
      a_block = a_block + xsimd::select(empty, zero, a.times(g));
      b_block = b_block + xsimd::select(empty, zero, a.times_difference(g, value, load(up.o + t * L)));
    }
    if (t1 % tuning<C>::KC == 0 || t1 == p.Tq) {
      a_sum = a_sum + a_block;
      b_sum = b_sum + b_block;
      a_block = zero;
      b_block = zero;
    }
  }
  const auto hidden = key == vec<C>(-inf);
  store(dv, xsimd::select(hidden, zero, a_sum));
  store(dk, xsimd::select(hidden, zero, b_sum));
}

}  // namespace aft::inline AFT_ISA::cpu_impl
