// SPDX-License-Identifier: Apache-2.0
/// @file stream/exact.hpp  One channel of one row by the definition (AFT Eq.
/// 2): the joint maximum of k + w over what it sees, the fold counting as a
/// key, and the terms relative to it, in double.
#pragma once

#include "fold.hpp"
#include "weights.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// A logit halved, so that no sum overflows, in two parts, so that none is
/// rounded.
struct exact_logit {
  double hi = -std::numeric_limits<double>::infinity(), lo = 0;

  static exact_logit sum(double a, double b) {
    const double x = a * 0.5, y = b * 0.5, hi = x + y, back = hi - x;
    return {hi, std::isfinite(hi) ? (x - (hi - back)) + (y - back) : 0};
  }
  bool above(const exact_logit& other) const { return hi > other.hi || (hi == other.hi && lo > other.lo); }
  double exp_from(const exact_logit& top) const { return std::exp(2 * ((hi - top.hi) + (lo - top.lo))); }
};

template <class C>
struct exact_result {
  C average, lse;
};

/// O(reach); taken for lanes that are not proven.
template <class C>
AFT_COMPILE_ONCE inline exact_result<C> exact_lane(const slot_arrays<C>& slot, index_t c, const row_weights<C>& w) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  exact_logit top;
  double largest = 0;
  bool tainted = false;
  const auto see = [&](const exact_logit& x, double size) {
    if (!(x.hi < inf)) tainted = true;
    if (x.above(top)) top = x;
    if (size < inf && size > largest) largest = size;
  };
  /// Calls f(k, w, v) for the kept positions that the row sees.
  const auto each = [&](const auto& f) {
    for (index_t s = w.first; s < w.last; ++s) {
      const index_t place = s % slot.kept();
      const double key = static_cast<double>(slot.keys(place)[c]), bias = static_cast<double>(w.biases[s - w.first]);
      if (key == -inf || bias == -inf) continue;
      f(key, bias, static_cast<double>((slot.row(place) + slot.step())[c]));
    }
  };
  each([&](double key, double bias, double value) { see(exact_logit::sum(key, bias), (std::abs)(value)); });

  exact_logit of_fold;
  double fold_num = 0, fold_den = 0;
  int shift = 0;
  if (w.with_fold) {
    const fold_lane<C> lane(slot, c);
    if (!lane.empty()) {
      const lane_reference& r = lane.reference();
      of_fold = exact_logit::sum(r.base, r.exponent * ln2_hi);
      of_fold.lo += r.exponent * (ln2_lo * 0.5);
      shift = lane.shift();
      const double unit = static_cast<double>(lane.unit());
      fold_num = static_cast<double>(lane.total_num()) * unit;
      fold_den = static_cast<double>(lane.total_den()) * unit;
      if (!(fold_den < inf)) tainted = true;
      const double average = std::ldexp(fold_num / fold_den, shift);
      see(of_fold, std::isfinite(fold_num) ? std::min((std::abs)(average), std::numeric_limits<double>::max()) : inf);
    }
  }
  if (tainted) return {static_cast<C>(nan), static_cast<C>(nan)};
  if (top.hi == -inf) return {C(0), -std::numeric_limits<C>::infinity()};

  const int scale = largest > 0 ? std::ilogb(largest) : 0;
  double num_sum = 0, den_sum = 0;
  if (fold_den > 0) {
    const double a = of_fold.exp_from(top);
    num_sum = a * std::ldexp(fold_num, shift - scale);
    den_sum = a * fold_den;
  }
  each([&](double key, double bias, double value) {
    const double a = exact_logit::sum(key, bias).exp_from(top);
    num_sum += a * std::ldexp(value, -scale);
    den_sum += a;
  });
  const double ratio = num_sum / den_sum, most = std::numeric_limits<C>::max();
  double average = std::ldexp(ratio, scale);
  // An average of finite values is none larger than they are: only rounding
  // could carry it past the largest number.
  if (std::isfinite(ratio) && (std::abs)(average) > most) average = std::copysign(most, average);
  return {static_cast<C>(average), static_cast<C>(2 * top.hi + (2 * top.lo + std::log(den_sum)))};
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
