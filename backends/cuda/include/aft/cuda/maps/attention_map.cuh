// SPDX-License-Identifier: Apache-2.0
/// @file maps/attention_map.cuh  The attention that an operator applies without forming it: AFT Eq. 3.
#pragma once

#include "../tensor/weights.cuh"
#include "../tensor/wide_access.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int map_threads = 128;

/// w = u v^T for one pair, of factors that are `scale` times as large.
AFT_DEVICE double wide_product(const device_bias& bias, index_t h, index_t t, index_t s, double scale) {
  double sum = 0;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t n = 0; n < bias.rank; ++n)
    sum += (load_wide(bias.u.data, bias.u.type, h * bias.u.sh + t * bias.u.sr + n * bias.u.sc) * scale) *
           (load_wide(bias.v.data, bias.v.type, h * bias.v.sh + s * bias.v.sr + n * bias.v.sc) * scale);
  return sum;
}

/// The bias of a pair that is not hidden, in double. A part of a product may leave the range, though the sum need not.
template <class C>
AFT_DEVICE double wide_weight(const device_call<C>& p, index_t b, index_t h, index_t t, index_t s) {
  if (p.bias.kind != bias_kind::factorized || !inside(p, t, s)) return static_cast<double>(weight(p, b, h, t, s));
  const double w = wide_product(p.bias, h, t, s, 1);
  return w - w == 0 ? w : wide_product(p.bias, h, t, s, 0x1p-520) * 0x1p520 * 0x1p520;
}

/// Half of k + w of a pair that query t sees, false for another: two finite numbers may add up to more than the largest
/// double, halves of them do not.
template <class C>
AFT_DEVICE bool half_logit(const device_call<C>& p, index_t b, index_t h, index_t t, index_t s, index_t c, double& x) {
  if (pair_hidden(p, b, t, s)) return false;
  const C k = load_key(p, b, s, c);
  if (k == -number<C>::infinity) return false;
  const double w = wide_weight(p, b, h, t, s);
  if (w == -number<double>::infinity) return false;
  x = 0.5 * static_cast<double>(k) + 0.5 * w;
  return true;
}

/// A thread for every (b, t, c), channels on lanes; three passes over the keys, which are read again rather than kept.
/// p.y is the map: its strides are of b, -, t, s, c.
template <class C>
AFT_KERNEL(map_threads, 2)
attention_map_kernel(const AFT_PARAMETER device_call<C> p) {
  const index_t i = block_index() * map_threads + thread_index();
  if (i >= p.B * p.Tq * p.d) return;
  const index_t c = i % p.d;
  const index_t t = i / p.d % p.Tq;
  const index_t b = i / p.d / p.Tq;
  const index_t h = c / (p.d / p.bias.heads);
  const span keys = is_padding(p, b, t) ? span{0, 0} : keys_of(p, t, t + 1);
  double x = 0;
  double most = -number<double>::infinity;
  for (index_t s = keys.lo; s < keys.hi; ++s)
    if (half_logit(p, b, h, t, s, c, x) && x > most) most = x;
  double sum = 0;
  for (index_t s = keys.lo; s < keys.hi; ++s)
    if (half_logit(p, b, h, t, s, c, x)) sum += exp(2 * (x - most));
  const index_t row = b * p.y.sb + t * p.y.s1 + c * p.y.sc;
  for (index_t s = 0; s < p.Tk; ++s) {
    double a = 0;
    if (s >= keys.lo && s < keys.hi && half_logit(p, b, h, t, s, c, x)) a = exp(2 * (x - most)) / sum;
    store_wide(p.y.data, p.y.type, row + s * p.y.s2, a);
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
