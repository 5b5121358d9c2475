// SPDX-License-Identifier: Apache-2.0
/// @file fold/epilogue.cuh  What becomes of a row's sums: gate, outputs, and the state that backward reads.
#pragma once

#include "../math/gates.cuh"
#include "../tensor/tensor_column.cuh"

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

/// row_epilogue for the rows of one column, with what does not depend on the row worked out once; q is read by the
/// caller, where reads_q().
template <class C, class Access = any_layout>
struct column_epilogue {
  using saved_access = typename saved_steps<Access>::access;
  tensor_column q, y, average, lse;
  index_t state = -1, state_step = 0;  ///< of row 0, where the column has one
  index_t rows = 0;                    ///< rows from here on are padding
  bool has_lse = false;

  AFT_DEVICE static column_epilogue of(const device_call<C>& p, const column& col) {
    column_epilogue e;
    if (reads_q(p)) e.q = tensor_column::of(p.q, col.b, col.c);
    if (p.y.set) e.y = tensor_column::of(p.y, col.b, col.c);
    if (p.average.set) e.average = tensor_column::of(p.average, col.b, col.c);
    const index_t shared_by = p.d / p.hk;
    e.has_lse = p.lse.set && col.c % shared_by == 0;
    if (e.has_lse) e.lse = tensor_column::of(p.lse, col.b, col.c / shared_by);
    if (p.state.inverse != nullptr && col.c % (p.d / p.state_channels) == 0)
      e.state = col.b * p.Tq * p.state_channels + col.c / (p.d / p.state_channels);
    e.state_step = p.state_channels;
    e.rows = length_of(p.query_lengths, col.b, p.Tq);
    return e;
  }
  AFT_DEVICE static bool reads_q(const device_call<C>& p) { return p.y.set && p.gate_fn != aft::gate::none; }

  /// From q to gate(q), for write().
  AFT_DEVICE static void gate(const device_call<C>& p, C (&q)[burst<C>]) {
    if (reads_q(p)) gate_values<C>(p.gate_fn, q, q);
  }

  AFT_DEVICE void write(const device_call<C>& p, index_t t, C gate_of_row, const row_result<C>& summed) const {
    const bool padding = t >= rows;
    const row_result<C> r = padding ? row_result<C>{} : summed;
    if (p.y.set) {
      C out = r.average;
      if (p.gate_fn != aft::gate::none && !padding) out *= gate_of_row;
      y.template write<Access>(p.y, p.positions, t, out);
    }
    if (p.average.set) average.template write<saved_access>(p.average, p.positions, t, r.average);
    if (has_lse) lse.template write<saved_access>(p.lse, p.positions, t, log_sum(r));
    if (state >= 0) store_state(p, state + t * state_step, r);
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
