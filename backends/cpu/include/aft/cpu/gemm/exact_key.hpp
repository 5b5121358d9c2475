// SPDX-License-Identifier: Apache-2.0
/// @file gemm/exact_key.hpp  The gradients of one key by their definition, for lanes whose fast result is not proven.
#pragma once

#include "../softmax/exact_weight.hpp"
#include "../softmax/saved_rows.hpp"
#include "../softmax/sums.hpp"
#include "bias_rows.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// dv and dk of key s for the lanes of `tile` (design: dv = sum_t a g, dk = sum_t a g (v - o)).
template <class C>
[[gnu::noinline]] inline void exact_key(const gradient_inputs& in, const pair_weights<C>& weights,
                                        const lane_tile<C>& tile, index_t s, const vec<C>& key, const vec<C>& value,
                                        C* dv, C* dk) {
  constexpr index_t chunk = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const backward_problem& p = *in.p;
  saved_rows<C, chunk> up;
  C w[chunk];
  vec_sum<C> sum = zero_sum<C>(), block = sum;
  for (index_t t0 = 0; t0 < p.Tq; t0 += chunk) {
    const index_t t1 = min_of(t0 + chunk, p.Tq);
    weights.columns(s, s + 1, t0, t1, w, chunk);
    up.read(in, tile, t0, t1);
    for (index_t t = 0; t < t1 - t0; ++t) {
      if (w[t] == -inf) continue;
      const pair_gradient_terms<C> terms = exact_pair_terms<C>(up, t, key, vec<C>(w[t]), value);
      block = block + vec_sum<C>{terms.dv, terms.dk};
    }
    if (t1 % tuning<C>::KC == 0 || t1 == p.Tq) {
      sum = sum + block;
      block = zero_sum<C>();
    }
  }
  store(dv, sum.num);
  store(dk, sum.den);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
