// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/far_sums.hpp  What gradients of keys of other ranks follow from, see far_keys, and A and B of
/// the backward scan.
#pragma once

#include "../far_sums.hpp"
#include "sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// slope and offset as A and B: A = e^-max slope, B = e^-max (offset - c slope). The centre c is the keys' average.
/// What the rows' averages are like, for B's scale, follows from c and from how far B / A says that they lie from it.
template <class C>
inline void begin_reverse(const problem& p, const column_block& x, index_t width, const reverse_lanes<C>& to) {
  to.clear(width);
  const index_t group = p.d / p.hk;
  const auto rest_of = [&](index_t channel, C centre) {
    return p.afar.offset[channel] - static_cast<double>(centre) * p.afar.slope[channel];
  };
  for (index_t l = 0; l < x.count; ++l) {
    const index_t channel = x.first + l;
    const double average = p.afar.average[channel], slope = p.afar.slope[channel];
    to.centre[l] = std::isfinite(average) ? static_cast<C>(average) : C(0);
    const double size = std::fabs(static_cast<double>(to.centre[l]));
    const double off = slope == 0 ? 0 : std::fabs(rest_of(channel, to.centre[l]) / slope);
    const double peak = off > size ? off : size, largest = static_cast<double>(exp_constants<C>::largest);
    to.o_peak[l] = static_cast<C>(peak < largest ? peak : largest);
  }
  C shifts[lanes<C>];
  for (index_t l = 0; l < x.count; ++l) {
    if (l % lanes<C> == 0) store(shifts, value_shift<C>(load(to.o_peak + l)));
    const index_t channel = x.first + l;
    const double max = p.afar.max[channel / group];
    if (max == -std::numeric_limits<double>::infinity()) continue;
    const int shift = static_cast<int>(shifts[l % lanes<C>]);
    const double a = p.afar.slope[channel], b = std::ldexp(rest_of(channel, to.centre[l]), -shift);
    const scaled_number weight = times_exp(1, -max);
    int more = 0;
    std::frexp(std::fabs(a) < std::fabs(b) ? b : a, &more);
    to.base[l] = static_cast<C>(weight.base);
    to.exponent[l] = static_cast<C>(weight.exponent + more);
    to.a[l] = static_cast<C>(std::ldexp(a, -more) * weight.mantissa);
    to.b[l] = static_cast<C>(std::ldexp(b, -more) * weight.mantissa);
  }
}

/// A and B over all rows as slope and offset.
template <class C>
inline void end_reverse(const problem& p, const column_block& x, const reverse_lanes<C>& from) {
  const index_t group = p.d / p.hk;
  C g_shift[lanes<C>], o_shift[lanes<C>];
  for (index_t l = 0; l < x.count; ++l) {
    const index_t lane = l % lanes<C>;
    if (lane == 0) {
      store(g_shift, value_shift<C>(load(from.g_peak + l)));
      store(o_shift, value_shift<C>(load(from.o_peak + l)));
    }
    const index_t channel = x.first + l;
    const double max = p.afar.max[channel / group];
    double &slope = p.afar.slope[channel], &offset = p.afar.offset[channel];
    slope = offset = 0;
    if (max == -std::numeric_limits<double>::infinity()) continue;
    const auto number = [&](C sum, C shift) {
      if (sum == C(0)) return 0.0;
      const double power = static_cast<double>(from.exponent[l]) + static_cast<double>(shift);
      const scaled_number all = times_exp(static_cast<double>(sum), max + static_cast<double>(from.base[l]));
      return std::ldexp(all.mantissa * std::exp(all.base), static_cast<int>(power) + static_cast<int>(all.exponent));
    };
    slope = number(from.a[l], g_shift[lane]);
    const double rest = number(from.b[l], g_shift[lane] + o_shift[lane]);
    offset = (slope == 0 ? 0 : slope * static_cast<double>(from.centre[l])) + rest;
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
