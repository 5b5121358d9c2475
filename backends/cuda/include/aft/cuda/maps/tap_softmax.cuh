// SPDX-License-Identifier: Apache-2.0
/// @file maps/tap_softmax.cuh  The softmax over the taps of one head, shared by the lanes of a warp.
#pragma once

#include "filter_call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// As checks::tap_softmax: only distances from the largest logit are formed, of halved sums whose rounding error is
/// kept, and the largest tap is left out of the sum of exponentials.
struct tap_softmax {
  half_sum<double> most{-number<double>::infinity, 0};
  index_t largest = 0;
  double rest = 0, tau = 1;

  AFT_DEVICE static half_sum<double> logit(const filter_call& p, index_t h, index_t j) {
    const double noise = p.noise.data == nullptr ? 0 : load_tap(p, p.noise, h, j);
    const half_sum<double> x = add_halves(load_tap(p, p.r, h, j), noise);
    return is_finite(x.hi) ? x : half_sum<double>{x.hi, 0};
  }
  AFT_DEVICE double distance(const filter_call& p, index_t h, index_t j) const {
    const half_sum<double> x = logit(p, h, j);
    return ((x.hi - most.hi) + (x.lo - most.lo)) / tau * 2;
  }
  AFT_DEVICE double share(double distance) const { return exp(distance) / (1 + rest); }
  AFT_DEVICE double log_sum() const { return log1p(rest); }

  AFT_DEVICE tap_softmax(const filter_call& p, index_t h, int lane) : tau(p.tau) {
    const index_t n = p.taps();
    largest = n;
    for (index_t j = lane; j < n; j += warp_size) take(logit(p, h, j), j);
    for (int mask = warp_size / 2; mask > 0; mask /= 2) {
      const double hi = shuffle_xor(most.hi, mask), lo = shuffle_xor(most.lo, mask);
      const auto at = shuffle_xor(static_cast<std::int64_t>(largest), mask);
      take({hi, lo}, at);
    }
    // Nothing but -inf or NaN: the first tap stands for all, and its distance from itself is NaN.
    if (largest == n) largest = 0;
    double sum = 0;
    for (index_t j = lane; j < n; j += warp_size) {
      const double x = distance(p, h, j);
      sum += j == largest ? x : exp(x);
    }
    rest = sum_of_lanes(sum);
  }

 private:
  /// The larger logit, of equal ones the first; NaN is never taken.
  AFT_DEVICE void take(const half_sum<double>& x, index_t j) {
    const bool above = x.hi > most.hi || (x.hi == most.hi && x.lo > most.lo);
    const bool level = x.hi == most.hi && x.lo == most.lo && j < largest && x.hi > -number<double>::infinity;
    if (!above && !level) return;
    most = x;
    largest = j;
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
