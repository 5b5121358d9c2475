// SPDX-License-Identifier: Apache-2.0
/// @file tensor/weights.cuh  w[t,s] of any bias, one pair at a time.
#pragma once

#include "call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The tap r[h, s - t + left] (AFT Eq. 6, DAFT Eq. 8), or false outside the filter's box.
template <class C>
AFT_DEVICE bool find_tap(const device_call<C>& p, index_t t, index_t s, point& tap) {
  const point a = point_of(p.positions, t);
  const point e = point_of(p.positions, s);
  const grid& n = p.bias.taps;
  tap = {e.x0 - a.x0 + p.bias.left.n0, e.x1 - a.x1 + p.bias.left.n1, e.x2 - a.x2 + p.bias.left.n2};
  return tap.x0 >= 0 && tap.x0 < n.n0 && tap.x1 >= 0 && tap.x1 < n.n1 && tap.x2 >= 0 && tap.x2 < n.n2;
}

/// Whether the pair lies inside the window or the filter's box; every pair does where there is neither.
template <class C>
AFT_DEVICE bool inside(const device_call<C>& p, index_t t, index_t s) {
  if (p.bias.bounded && (s < t - p.bias.before || s > t + p.bias.after)) return false;
  point tap{};
  return p.bias.kind != bias_kind::filter || find_tap(p, t, s, tap);
}

/// Whether causality or an excluding window hides the pair. Padding does not: it is a matter of rows and columns, as
/// the weights of a pair may serve several batch elements.
template <class C>
AFT_DEVICE bool place_hidden(const device_call<C>& p, index_t t, index_t s) {
  return (p.causal && s > t + p.diagonal) || (p.excluded && !inside(p, t, s));
}

/// Whether that or a per-query mask does.
template <class C>
AFT_DEVICE bool pair_hidden(const device_call<C>& p, index_t b, index_t t, index_t s) {
  return place_hidden(p, t, s) || (pair_mask(p) && mask_hides(p, b, t, s));
}

/// w = u v^T for one pair. Only calls whose rows are too long to be expanded (see plan/expand.cuh) come here.
template <class C>
AFT_DEVICE C factor_product(const device_bias& bias, index_t h, index_t t, index_t s) {
  C sum = C(0);
  // Left to itself nvcc unrolls this by four in each of some twenty places, two reads of three types in every one: half
  // of its time for all kernels (82 s, or 49 s like this, of the architecture that takes longest).
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t n = 0; n < bias.rank; ++n) {
    const C left = load<C>(bias.u.data, bias.u.type, h * bias.u.sh + t * bias.u.sr + n * bias.u.sc);
    sum = fused(left, load<C>(bias.v.data, bias.v.type, h * bias.v.sh + s * bias.v.sr + n * bias.v.sc), sum);
  }
  return sum;
}

/// w[t,s] of head h, and of b where the bias has a batch axis. The memory behind hidden pairs is not to be read, so ask
/// pair_hidden first.
template <class C>
AFT_DEVICE C weight(const device_call<C>& p, index_t b, index_t h, index_t t, index_t s) {
  const device_bias& bias = p.bias;
  if (bias.kind == bias_kind::none || (bias.bounded && !inside(p, t, s))) return C(0);
  if (bias.kind == bias_kind::filter) {
    point j{};
    if (!find_tap(p, t, s, j)) return C(0);
    return load<C>(bias.r, bias.r_type, h * bias.r_sh + j.x0 * bias.r_s0 + j.x1 * bias.r_s1 + j.x2 * bias.r_s2);
  }
  if (bias.kind == bias_kind::factorized) return factor_product<C>(bias, h, t, s);
  const index_t column = bias.kind == bias_kind::banded ? s - t + bias.before : s - bias.column;
  const index_t at =
      (bias.batched ? b : 0) * bias.w.sb + h * bias.w.sh + (t - bias.row) * bias.w.sr + column * bias.w.sc;
  return load<C>(bias.w.data, bias.w.type, at);
}

/// w[t,s], or -inf for a hidden pair.
template <class C>
AFT_DEVICE C visible_weight(const device_call<C>& p, index_t b, index_t h, index_t t, index_t s) {
  return pair_hidden(p, b, t, s) ? -number<C>::infinity : weight(p, b, h, t, s);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
