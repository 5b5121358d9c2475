// SPDX-License-Identifier: Apache-2.0
/// @file gradient_scale.hpp  The power of two that a call's upstream gradients are multiplied by for products of dw.
#pragma once

#include <limits>

#include "parallel.hpp"
#include "upstream.hpp"
#include "value_scale.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Products with g are formed before weights of up to 2^40 multiply them: of gradients near the end of the range little
/// would be left by then. by * back = 1, both 1 for gradients of ordinary size; powers of two do not change the bits.
template <class C>
struct gradient_scale {
  C by = C(1);
  C back = C(1);
};

/// `highs` has room for a vector a thread.
template <class C>
inline gradient_scale<C> find_gradient_scale(const gradient_inputs& in, int threads, C* highs) {
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = index_t{1} << 14;  // numbers an item: what a thread reads in some microseconds
  const index_t n = in.p->B * in.p->Tq * in.p->d;
  const C* const g = reinterpret_cast<const C*>(in.g.data);
  const vec<C> zero(C(0)), inf(std::numeric_limits<C>::infinity());
  for (index_t i = 0; i < threads * L; ++i) highs[i] = C(0);
  parallel_for((n + chunk - 1) / chunk, threads, [&](index_t item, int thread) {
    const index_t end = (item + 1) * chunk < n ? (item + 1) * chunk : n;
    vec<C> high = load(highs + thread * L);
    const auto take = [&](const vec<C>& x) {
      const vec<C> size = xsimd::abs(x);
      high = max_ignoring_nan<C>(high, xsimd::select(size < inf, size, zero));
    };
    index_t i = item * chunk;
    for (; i + L <= end; i += L) take(load(g + i));
    for (; i < end; ++i) take(vec<C>(g[i]));
    store(highs + thread * L, high);
  });
  C most = C(0);
  for (index_t i = 0; i < threads * L; ++i) most = highs[i] > most ? highs[i] : most;
  gradient_scale<C> scale;
  constexpr C least = exp_constants<C>::proof;
  if (most > C(0) && (most < least || most > C(1) / least)) value_scale(most, scale.by, scale.back);
  return scale;
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
