// SPDX-License-Identifier: Apache-2.0
/// @file softmax/sums.hpp  weighted_sum of a vector of lanes: num and den side by side in memory.
#pragma once

#include <aft/math/exp_sum.hpp>
#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
using vec_sum = weighted_sum<vec<C>>;

/// The sum over no keys.
template <class C>
[[gnu::always_inline]] inline vec_sum<C> zero_sum() {
  return {vec<C>(C(0)), vec<C>(C(0))};
}
template <class C>
[[gnu::always_inline]] inline vec_sum<C> load_sum(const C* p) {
  return {load(p), load(p + lanes<C>)};
}
template <class C>
[[gnu::always_inline]] inline void store_sum(C* p, const vec_sum<C>& x) {
  store(p, x.num);
  store(p + lanes<C>, x.den);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
