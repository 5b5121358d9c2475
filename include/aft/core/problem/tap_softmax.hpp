// SPDX-License-Identifier: Apache-2.0
/// @file problem/tap_softmax.hpp  The softmax over the taps of one head of a filter, in double.
#pragma once

#include "filter_stats.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// The softmax over a head's taps with logits r, or (r + noise) / tau (Jang et al., arXiv 1611.01144).
///
/// Only distances from the largest logit are formed, and of sums whose rounding error is kept: a distance of 1 between
/// logits near 1e15 is a distance of 1. Everything is halved before it is added, so that no sum of two finite numbers
/// overflows. A head with NaN or +inf, or with nothing but -inf, has no softmax, and every share of it is NaN.
class tap_softmax {
 public:
  explicit tap_softmax(const tap_row& r) : tap_softmax(r, nullptr, 1) {}
  tap_softmax(const tap_row& r, const tap_row& noise, double tau) : tap_softmax(r, &noise, tau) {}

  /// The first of the largest taps.
  index_t largest() const { return largest_; }
  /// The logit of a tap less the largest one, at most 0.
  double distance(index_t tap) const {
    const halves x = logit(tap);
    return ((x.high - most_.high) + (x.low - most_.low)) / tau_ * 2;
  }
  /// The tap's share, which the others make up to 1.
  double share(index_t tap) const { return std::exp(distance(tap)) / (1 + rest_); }
  /// log sum exp(distance). Near 0 for a head with one large tap, where log(1 + rest) would round it away.
  double log_sum() const { return std::log1p(rest_); }

 private:
  /// high + low = a/2 + b/2 exactly (Knuth's two-sum).
  struct halves {
    double high = -std::numeric_limits<double>::infinity();
    double low = 0;
  };

  tap_softmax(const tap_row& r, const tap_row* noise, double tau) : r_(&r), noise_(noise), tau_(tau) {
    for (index_t i = 0; i < r.size(); ++i) {
      const halves x = logit(i);
      if (x.high > most_.high || (x.high == most_.high && x.low > most_.low)) {
        most_ = x;
        largest_ = i;
      }
    }
    for (index_t i = 0; i < r.size(); ++i) {
      // The largest tap's own distance is 0, but for infinity less infinity.
      rest_ += i == largest_ ? distance(i) : std::exp(distance(i));
    }
  }

  halves logit(index_t tap) const {
    const double a = r_->load(tap) * 0.5;
    const double b = noise_ == nullptr ? 0 : noise_->load(tap) * 0.5;
    const double high = a + b;
    if (!std::isfinite(high)) return {high, 0};
    const double back = high - a;
    return {high, (a - (high - back)) + (b - back)};
  }

  const tap_row* r_;
  const tap_row* noise_;
  double tau_;
  halves most_{};
  index_t largest_ = 0;
  double rest_ = 0;  ///< the sum of exp(distance) of all taps but the largest
};

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
