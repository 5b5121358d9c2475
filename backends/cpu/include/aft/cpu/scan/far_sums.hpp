// SPDX-License-Identifier: Apache-2.0
/// @file scan/far_sums.hpp  The sums of keys of other ranks, see far_keys, as the fold of the scan has them, and back.
#pragma once

#include <cmath>

#include "emit.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// x = mantissa 2^exponent e^base, with base 0 unless x lies beyond the range that powers of two serve.
struct scaled_number {
  double mantissa = 0;
  index_t exponent = 0;
  double base = 0;
};

/// e^log times x. A logarithm is a key, or a whole number, so that in hi and lo its rest is exact.
inline scaled_number times_exp(double x, double log) {
  if (!(std::fabs(log) <= exp_constants<double>::range)) return {x, 0, log};
  const double n = std::nearbyint(log * exp_constants<double>::log2e);
  const double rest = (log - n * exp_constants<double>::ln2_hi) - n * exp_constants<double>::ln2_lo;
  int more = 0;
  const double mantissa = std::frexp(x * std::exp(rest), &more);
  return {mantissa, static_cast<index_t>(n) + more, 0};
}

/// Where the sums of a column block begin: with no key, or with those of other ranks.
template <class C>
inline void begin_sums(const problem& p, const column_block& x, index_t width, const fold_lanes<C>& to) {
  to.clear(width);
  if (!p.afar.joins_rows()) return;
  const index_t group = p.d / p.hk;
  for (index_t l = 0; l < x.count; ++l) {
    const index_t channel = x.first + l, key = channel / group;
    if (p.afar.den[key] == 0) continue;
    const scaled_number den = times_exp(p.afar.den[key], p.afar.max[key]);
    const C average = static_cast<C>(p.afar.average[channel]), size = std::fabs(average);
    to.base[l] = static_cast<C>(den.base);
    to.exponent[l] = static_cast<C>(den.exponent);
    to.den[l] = static_cast<C>(den.mantissa);
    if (size <= exp_constants<C>::largest) to.peak[l] = size;
    to.num[l] = average;
  }
  for (index_t l = 0; l < width; l += lanes<C>) {
    const vec<C> scaled = times_pow2<C>(load(to.num + l), -value_shift<C>(load(to.peak + l)));
    store(to.num + l, scaled * load(to.den + l));
  }
}

/// Sums of a column block to max, den and average. `max` is a whole number not far below the logarithm of den, or the
/// base that the sums have.
template <class C>
inline void end_sums(const problem& p, const column_block& x, const fold_lanes<C>& from) {
  using k_ = exp_constants<double>;
  const index_t group = p.d / p.hk;
  C shifts[lanes<C>];
  for (index_t l = 0; l < x.count; ++l) {
    if (l % lanes<C> == 0) store(shifts, value_shift<C>(load(from.peak + l)));
    const index_t channel = x.first + l, key = channel / group;
    const bool none = from.den[l] == C(0);
    const double unit = static_cast<double>(from.key_unit[l]);
    const double num = static_cast<double>(from.num[l]) * unit, sum = static_cast<double>(from.den[l]) * unit;
    if (channel % group == 0) {
      double &max = p.afar.max[key], &den = p.afar.den[key];
      int more = 0;
      const double mantissa = std::frexp(sum, &more);
      if (none) {
        max = -std::numeric_limits<double>::infinity();
        den = 0;
      } else if (from.base[l] != C(0) || !(sum <= k_::largest)) {
        max = static_cast<double>(from.base[l]);
        den = std::ldexp(sum, static_cast<int>(from.exponent[l]));
      } else {
        const double n = static_cast<double>(from.exponent[l]) + more;
        max = std::floor(std::log(mantissa) + n / k_::log2e);
        den = mantissa * std::exp((n * k_::ln2_hi - max) + n * k_::ln2_lo);
      }
    }
    // Rounding may take it past the largest value, and near the end of the range past all numbers.
    const double size = static_cast<double>(from.peak[l]);
    const double average = none ? 0 : std::ldexp(num / sum, static_cast<int>(shifts[l % lanes<C>]));
    const bool beyond = std::fabs(average) > size && std::fabs(num) <= static_cast<double>(exp_constants<C>::largest) &&
                        shifts[l % lanes<C>] != C(0);
    p.afar.average[channel] = beyond ? std::copysign(size, average) : average;
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
