// SPDX-License-Identifier: Apache-2.0
/// @file fold/epilogue.cuh  What becomes of a row's sums: gate, outputs, and the state that backward reads.
#pragma once

#include "../math/gates.cuh"
#include "../tensor/call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// den 2^exponent exp(2 (base_hi + base_lo)) = sum exp(k + w); den is 0 for a row that sees no key, NaN where NaN or
/// +inf is among what it sees.
template <class C>
struct row_result {
  C average = C(0);
  C den = C(0);
  C exponent = C(0);
  C base_hi = C(0);
  C base_lo = C(0);
};

template <class C>
AFT_DEVICE void store_state(const device_call<C>& p, index_t at, const row_result<C>& r) {
  const bool summed = r.den > C(0);
  const split_exp<C> parts = split_number<C>(summed ? r.den : C(1));
  p.state.inverse[at] = summed ? C(1) / parts.mantissa : r.den;
  p.state.exponent[at] = summed ? r.exponent + parts.exponent : C(0);
  p.state.base_hi[at] = r.base_hi;
  p.state.base_lo[at] = r.base_lo;
}

template <class C>
AFT_DEVICE C log_sum(const row_result<C>& r) {
  if (r.den == C(0)) return -number<C>::infinity;
  if (!(r.den > C(0))) return r.den;
  return log_from_base<C>({r.base_hi, r.base_lo}, r.den, r.exponent);
}

/// Whether nothing more is to be summed for a row: its sums are proven, or it is padding, whose sums row_epilogue
/// drops.
template <class C>
AFT_DEVICE bool settled(const device_call<C>& p, index_t b, index_t t, bool proven) {
  return proven || is_padding(p, b, t);
}

/// Writes y, lse, average and state of one row and channel, those that are wanted. y may be q itself: q[b,t,c] is read
/// before y[b,t,c] is written, and by nobody else. A row of padding is one that sees no key, and its y is 0 even where
/// q is no number.
template <class C>
AFT_DEVICE void row_epilogue(const device_call<C>& p, index_t b, index_t t, index_t c, const row_result<C>& summed) {
  const bool padding = is_padding(p, b, t);
  const row_result<C> r = padding ? row_result<C>{} : summed;
  if (p.y.set) {
    C out = r.average;
    if (p.gate_fn != gate::none && !padding) out *= gate_value<C>(p.gate_fn, load<C>(p.q, p.positions, b, t, c));
    store<C>(p.y, p.positions, b, t, c, out);
  }
  if (p.average.set) store<C>(p.average, p.positions, b, t, c, r.average);
  const index_t shared_by = p.d / p.hk;
  if (p.lse.set && c % shared_by == 0) store<C>(p.lse, p.positions, b, t, c / shared_by, log_sum(r));
  const index_t per_state = p.d / p.state_channels;
  if (p.state.inverse != nullptr && c % per_state == 0)
    store_state(p, (b * p.Tq + t) * p.state_channels + c / per_state, r);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
