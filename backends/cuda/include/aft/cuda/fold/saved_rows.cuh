// SPDX-License-Identifier: Apache-2.0
/// @file fold/saved_rows.cuh  What a backward pass knows of its queries: g = dy gate(q), o, and the rows' weights.
#pragma once

#include "epilogue.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// One query in one channel: a[t,s,c] = exp(k + w - 2 (base_hi + base_lo)) 2^-exponent inverse. Of a row that sees no
/// key inverse, g and o are 0.
template <class C>
struct saved_row {
  C g, o, inverse, exponent, base_hi, base_lo;
};

/// The weights of a row whose lse the caller gave.
template <class C>
AFT_DEVICE void set_weights(C lse, saved_row<C>& u) {
  const bool empty = lse == -number<C>::infinity;
  const bool beyond = !empty && magnitude(lse) > number<C>::range;
  const split_exp<C> e = exp_split<C>(empty || beyond ? C(0) : -lse);
  u.inverse = empty ? C(0) : e.mantissa;
  u.exponent = empty ? C(0) : -e.exponent;
  u.base_hi = beyond ? lse * C(0.5) : C(0);
  u.base_lo = C(0);
}

/// The weights of a row, from its state or from the caller's rounded lse.
template <class C>
AFT_DEVICE void load_row_weights(const device_call<C>& p, index_t b, index_t t, index_t c, saved_row<C>& u) {
  if (!p.from_lse) {
    const index_t at = (b * p.Tq + t) * p.state_channels + c / (p.d / p.state_channels);
    u.inverse = p.state.inverse[at];
    u.exponent = p.state.exponent[at];
    u.base_hi = p.state.base_hi[at];
    u.base_lo = p.state.base_lo[at];
    return;
  }
  set_weights(is_padding(p, b, t) ? -number<C>::infinity : load<C>(p.lse, p.positions, b, t, c / (p.d / p.hk)), u);
}

template <class C>
AFT_DEVICE saved_row<C> load_saved_row(const device_call<C>& p, index_t b, index_t t, index_t c) {
  saved_row<C> u;
  load_row_weights(p, b, t, c, u);
  u.g = p.g[(b * p.Tq + t) * p.d + c];
  u.o = u.inverse == C(0) ? C(0) : load<C>(p.average, p.positions, b, t, c);
  return u;
}

/// A query as a scan adds it: g times inverse, NaN where only the exact weight will do. A row that sees no key has
/// nothing to add, in any units.
template <class C>
AFT_DEVICE void weigh_row(const saved_row<C>& u, C& g, C& o, C& exponent) {
  const bool within = u.base_hi == C(0) && u.base_lo == C(0);
  const bool empty = u.inverse == C(0);
  g = empty ? C(0) : (within ? u.g * u.inverse : number<C>::nan);
  o = empty ? C(0) : u.o;
  exponent = empty ? -no_exponent<C> : u.exponent;
}

/// Queries of one column, so weighed.
template <class C>
struct query_burst {
  C g[burst<C>], o[burst<C>], exponent[burst<C>];
};

/// The rows of one column, some at a time.
template <class C, class Access = any_layout>
struct saved_column {
  using saved_access = typename saved_steps<Access>::access;
  tensor_column average, lse;
  const C* g = nullptr;
  index_t state = 0;  ///< of row 0
  index_t rows = 0;   ///< rows from here on are padding

  AFT_DEVICE static saved_column of(const device_call<C>& p, const column& col) {
    saved_column saved;
    saved.average = tensor_column::of(p.average, col.b, col.c);
    if (p.from_lse) saved.lse = tensor_column::of(p.lse, col.b, quotient(col.c, quotient(p.d, p.hk)));
    saved.g = p.g + col.b * p.Tq * p.d + col.c;
    saved.state = col.b * p.Tq * p.state_channels + quotient(col.c, quotient(p.d, p.state_channels));
    saved.rows = length_of(p.query_lengths, col.b, p.Tq);
    return saved;
  }

  /// Bit i: row t + i sees no key, or is none of those in [0, count).
  AFT_DEVICE std::uint32_t empty_rows(const device_call<C>& p, index_t t, int count) const {
    C x[burst<C>];
    std::uint32_t empty = 0;
    if (p.from_lse) {
      lse.template read<saved_access>(p.lse, p.positions, t, 0, count, x);
    } else {
      const index_t state_row = unknown(p.state_channels);
      AFT_DEVICE_UNROLL
      for (int i = 0; i < burst<C>; ++i) x[i] = i < count ? p.state.inverse[state + (t + i) * state_row] : C(0);
    }
    const C none = p.from_lse ? -number<C>::infinity : C(0);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i)
      if (x[i] == none || i >= count || t + i >= rows) empty |= 1u << i;
    return empty;
  }

  /// Rows t + i for i in [lo, hi); others add nothing.
  AFT_DEVICE void read(const device_call<C>& p, index_t t, int lo, int hi, query_burst<C>& q) const {
    average.template read<saved_access>(p.average, p.positions, t, lo, hi, q.o);
    const index_t row = unknown(p.d), state_row = unknown(p.state_channels);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) q.g[i] = i >= lo && i < hi ? g[(t + i) * row] : C(0);
    if (p.from_lse) lse.template read<saved_access>(p.lse, p.positions, t, lo, hi, q.exponent);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) {
      saved_row<C> u{};
      if (i >= lo && i < hi) {
        if (p.from_lse) {
          set_weights(t + i < rows ? q.exponent[i] : -number<C>::infinity, u);
        } else {
          const index_t at = state + (t + i) * state_row;
          u = {C(0), C(0), p.state.inverse[at], p.state.exponent[at], p.state.base_hi[at], p.state.base_lo[at]};
        }
      }
      u.g = q.g[i];
      u.o = q.o[i];
      weigh_row(u, q.g[i], q.o[i], q.exponent[i]);
    }
  }
};

/// A query as the folds stage it: the exponent is NaN where only the exact weight will do, and where the row sees
/// nothing at all in this channel. Such a row may be padding, before keys that hold anything: it is looked up, and left
/// out.
template <class C>
struct staged_query {
  C g, o, exponent;  ///< g times inverse
};

template <class C>
AFT_DEVICE staged_query<C> stage_query(const device_call<C>& p, index_t b, index_t t, index_t c) {
  const saved_row<C> u = load_saved_row(p, b, t, c);
  const bool ordinary = u.inverse != C(0) && u.base_hi == C(0) && u.base_lo == C(0);
  return {u.g * u.inverse, u.o, ordinary ? u.exponent : number<C>::nan};
}

/// The weight of any pair relative to the row's exponent, with logits of any size.
template <class C>
AFT_DEVICE C exact_weight(const saved_row<C>& u, C key, C weight) {
  const half_sum<C> z = add_halves<C>(key, weight);
  const C x = C(2) * ((z.hi - u.base_hi) + (z.lo - u.base_lo));
  // Relative to the row before it is cut: beside a row far below 0 the end of exp's range is no small number.
  const C relative = fused(u.exponent, -number<C>::ln2_lo, fused(u.exponent, -number<C>::ln2_hi, x));
  // Visible logits do not exceed their row's maximum but by its rounding; NaN stays.
  const C most = C(8);
  return exp_scaled<C>(smaller(relative, most), C(0));
}

/// sum + a (x - y), also where only x - y lies beyond the range.
template <class C>
AFT_DEVICE C add_difference(C a, C x, C y, C sum) {
  const C difference = x - y;
  if (is_finite(difference) || !is_finite(x) || !is_finite(y)) return fused(a, difference, sum);
  return fused(C(2) * a, C(0.5) * x - C(0.5) * y, sum);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
