// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/scale.hpp  Powers of two that bring the factors of dw, gradients and values, near 1 for its
/// products.
#pragma once

#include "../gemm/pack_keys.hpp"
#include "../math/power_of_two.hpp"
#include "../softmax/saved_rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Products with g and v are formed before weights of up to 2^40 multiply them: of numbers near the end of the range
/// little would be left by then. All 1 for factors of ordinary size; powers of two do not change the bits.
template <class C>
struct gradient_scale {
  C by = C(1);    ///< of g
  C lift = C(1);  ///< of v and o
  C back = C(1);  ///< a product is multiplied by this, then by `lower`, which one number may be too small for
  C lower = C(1);
};

/// The largest |o| where none reaches `least`; else some number that does. Averages are what rows see of v: a hidden
/// value has no say. Ordinary data ends the search at its first vector, so one thread is enough.
template <class C>
[[gnu::noinline]] inline C largest_average(const gradient_inputs& in, C least) {
  constexpr index_t L = lanes<C>;
  const backward_problem& p = *in.p;
  C most = C(0), o[column_chunk * L];
  for (index_t b = 0; b < p.B; ++b) {
    for (index_t c = 0; c < p.d; c += L) {
      const lane_tile<C> tile = make_lane_tile<C>(b, 0, p.d, c, p.d);
      const lane_field<C> averages(in.average, p.grid, tile, 1);
      for (index_t t0 = 0; t0 < p.Tq; t0 += column_chunk) {
        const index_t t1 = min_of(t0 + column_chunk, p.Tq);
        averages.read(t0, t1, o);
        for (index_t i = 0; i < (t1 - t0) * L; ++i) {
          const C size = o[i] < C(0) ? -o[i] : o[i];
          if (size > most && size <= exp_constants<C>::largest) most = size;
          if (most >= least) return most;
        }
      }
    }
  }
  return most;
}

/// From the largest |g| that the lanes of every thread met, see gate_gradient, and the averages.
template <class C>
inline gradient_scale<C> find_gradient_scale(const gradient_inputs& in, int threads, const C* max_abs) {
  C most = C(0);
  for (index_t i = 0; i < threads * lanes<C>; ++i) most = max_abs[i] > most ? max_abs[i] : most;
  gradient_scale<C> scale;
  constexpr C least = exp_constants<C>::proof;
  if (most > C(0) && (most < least || most > C(1) / least)) value_scale(most, scale.by, scale.back);
  const C average = largest_average<C>(in, least);
  if (average > C(0) && average < least) value_scale(average, scale.lift, scale.lower);
  // Opposite powers are one: apart, the first of them could leave the range that both together stay in.
  if (scale.back > C(1)) {
    scale.back *= scale.lower;
    scale.lower = C(1);
  }
  return scale;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
