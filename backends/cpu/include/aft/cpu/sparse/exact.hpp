// SPDX-License-Identifier: Apache-2.0
/// @file sparse/exact.hpp  One row and channel of a sparse convolution by the definition, in double: the joint maximum
/// over the keys that the row sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "taps.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The keys that row t of head h reads through taps, in order; returns how many. `to` has room for all taps.
inline index_t tapped_keys(const sparse_taps& taps, index_t h, index_t t, tapped_key* to) {
  const sparse_taps::row_place place = taps.place(t);
  index_t n = 0;
  for (index_t i = 0; i < taps.count(); ++i) {
    const sparse_tap& tap = taps.of(h)[i];
    if (const index_t s = taps.key(tap, place); s >= 0) to[n++] = {s, tap.value};
  }
  std::sort(to, to + n, [](const tapped_key& a, const tapped_key& b) { return a.key < b.key; });
  return n;
}

/// Calls f(s, w) for every key that row t of batch element b sees by position, mask and lengths, and whose w is not
/// -inf.
template <class F>
inline void for_seen_keys(const problem& p, index_t b, index_t t, const tapped_key* tapped, index_t n, const F& f) {
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  index_t end = p.key_limit(b);
  if (p.causal) end = min_of(end, t + p.first_query + 1);
  const auto see = [&](index_t s, double w) {
    if (w != hidden && !p.mask_hides(b, t, s)) f(s, w);
  };
  index_t i = 0;
  if (p.excluded) {
    for (; i < n && tapped[i].key < end; ++i) see(tapped[i].key, tapped[i].value);
    return;
  }
  for (index_t s = 0; s < end; ++s) {
    const bool tap = i < n && tapped[i].key == s;
    see(s, tap ? tapped[i].value : 0.0);
    if (tap) ++i;
  }
}

/// What a row gives a channel, and the state that its gradients start from: weights are exp(2 (x - base)) / sum with x
/// half a logit.
struct sparse_row {
  double average = 0;
  double lse = -std::numeric_limits<double>::infinity();
  double base = 0, sum = 0;
};

/// AFT Eq. 6 without the gate for row t and channel c. O(Tk), or O(taps) where pairs outside the filter are excluded.
inline sparse_row exact_sparse_row(const problem& p, index_t b, index_t c, index_t t, const tapped_key* tapped,
                                   index_t n) {
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  // Halves, so that the sum of two finite numbers is finite.
  const auto half_logit = [&](index_t s, double w) {
    const index_t at = b * p.k.sb + position_offset(p.k, p.grid, s) + c / (p.d / p.hk) * p.k.sc;
    const double k = load_element(p.k.data, p.k.type, at);
    return k == hidden ? hidden : 0.5 * k + 0.5 * w;
  };
  const auto value = [&](index_t s) {
    return load_element(p.v.data, p.v.type, b * p.v.sb + position_offset(p.v, p.grid, s) + c * p.v.sc);
  };
  sparse_row row;
  double most = hidden;
  for_seen_keys(p, b, t, tapped, n, [&](index_t s, double w) {
    const double x = half_logit(s, w);
    // NaN is kept, as the weight of nothing else is then known.
    if (!(x <= most)) most = x != x || most == most ? x : most;
  });
  if (most == hidden) return row;
  row.base = most;
  for_seen_keys(p, b, t, tapped, n, [&](index_t s, double w) {
    const double x = half_logit(s, w);
    if (x != hidden) row.sum += std::exp(2 * (x - most));
  });
  double largest = 0;
  for_seen_keys(p, b, t, tapped, n, [&](index_t s, double w) {
    const double x = half_logit(s, w);
    if (x == hidden) return;
    const double v = value(s), size = std::fabs(v);
    row.average += std::exp(2 * (x - most)) / row.sum * v;
    if (size <= exp_constants<double>::largest && size > largest) largest = size;
  });
  // An average of finite values is no larger than the largest; rounding may say otherwise at the end of the range.
  if (largest > 0x1p1000 && std::fabs(row.average) > largest && row.sum == row.sum) {
    bool finite = true;
    for_seen_keys(p, b, t, tapped, n, [&](index_t s, double w) {
      if (half_logit(s, w) != hidden && !std::isfinite(value(s))) finite = false;
    });
    if (finite) row.average = row.average < 0 ? -largest : largest;
  }
  row.lse = 2 * most + std::log(row.sum);
  return row;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
