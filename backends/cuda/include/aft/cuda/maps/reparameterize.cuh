// SPDX-License-Identifier: Apache-2.0
/// @file maps/reparameterize.cuh  The filter of AFT-conv as a normalised filter with a gain and a shift (AFT Eq. 8,
/// DAFT Eq. 9), and its gradients. A warp a head, in double: a filter has few taps.
#pragma once

#include "filter_call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// As checks::filter_stats: taps relative to the first one and scaled by a power of two before anything is added, so
/// that a large common offset costs no digits and squares neither overflow nor vanish.
struct tap_stats {
  bool constant = true;
  double base = 0, factor = 1, mean = 0, deviation = 0;
  int exponent = 0;

  AFT_DEVICE double scaled(double x) const { return ldexp(x * factor - base * factor, -exponent); }
  AFT_DEVICE double normalised(double x) const { return (scaled(x) - mean) / deviation; }
  AFT_DEVICE double per_deviation(double gain, double x) const {
    int of_gain = 0, of_x = 0;
    const double product = frexp(gain, &of_gain) * frexp(x / deviation * factor, &of_x);
    return is_finite(product) ? ldexp(product, of_gain + of_x - exponent) : product;
  }

  AFT_DEVICE tap_stats(const filter_call& p, index_t h, int lane) {
    const index_t n = p.taps();
    if (n < 2) return;
    base = load_tap(p, p.r, h, 0);
    double low = base, high = base;
    bool finite = true;
    for (index_t j = lane; j < n; j += warp_size) {
      const double x = load_tap(p, p.r, h, j);
      finite = finite && is_finite(x);
      low = smaller(low, x);
      high = larger(high, x);
    }
    if (ballot(!finite) != 0) {
      constant = false;
      deviation = number<double>::nan;
      return;
    }
    for (int mask = warp_size / 2; mask > 0; mask /= 2) {
      const double other_low = shuffle_xor(low, mask), other_high = shuffle_xor(high, mask);
      low = smaller(low, other_low);
      high = larger(high, other_high);
    }
    constant = low == high;
    if (constant) return;
    // The distance between two doubles can exceed the largest double; halves of them cannot.
    if (!is_finite(high - low)) factor = 0.5;
    exponent = ilogb(high * factor - low * factor);
    double sum = 0;
    for (index_t j = lane; j < n; j += warp_size) sum += scaled(load_tap(p, p.r, h, j));
    mean = sum_of_lanes(sum) / static_cast<double>(n);
    double squares = 0;
    for (index_t j = lane; j < n; j += warp_size) {
      const double z = scaled(load_tap(p, p.r, h, j)) - mean;
      squares += z * z;
    }
    deviation = sqrt(sum_of_lanes(squares) / static_cast<double>(n - 1));
  }
};

/// C is double: a template, so that every file of a program may hold the kernel.
template <class C>
AFT_KERNEL(warp_size, 4)
reparameterize_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  const tap_stats stats(p, h, lane);
  const C gain = load_wide(p.gain.data, p.gain.type, h * p.gain.sh);
  const C shift = load_wide(p.shift.data, p.shift.type, h * p.shift.sh);
  for (index_t j = lane; j < p.taps(); j += warp_size) {
    const C z = stats.constant ? 0 : stats.normalised(load_tap(p, p.r, h, j));
    store_wide(p.out.data, p.out.type, tap_offset(p, p.out, h, j), stats.constant ? shift : gain * z + shift);
  }
}

/// With z = (r - mean) / std: dr[j] = gain/std (dout[j] - mean(dout) - z[j] sum(dout z) / (N-1)), dgain = sum(dout z),
/// dshift = sum(dout).
template <class C>
AFT_KERNEL(warp_size, 4)
reparameterize_gradient_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  const tap_stats stats(p, h, lane);
  const C gain = load_wide(p.gain.data, p.gain.type, h * p.gain.sh);
  const auto taps = static_cast<C>(p.taps());
  C sum = 0;
  for (index_t j = lane; j < p.taps(); j += warp_size) sum += load_tap(p, p.dout, h, j);
  sum = sum_of_lanes(sum);
  // z adds up to 0, so a constant may be taken off dout: a large common part of it would only bring rounding.
  C product = 0;
  for (index_t j = lane; j < p.taps() && !stats.constant; j += warp_size)
    product += (load_tap(p, p.dout, h, j) - sum / taps) * stats.normalised(load_tap(p, p.r, h, j));
  product = sum_of_lanes(product);
  for (index_t j = lane; j < p.taps() && p.dr.data != nullptr; j += warp_size) {
    C dr = 0;
    if (!stats.constant) {
      const C z = stats.normalised(load_tap(p, p.r, h, j));
      dr = stats.per_deviation(gain, load_tap(p, p.dout, h, j) - sum / taps - z * product / (taps - 1));
    }
    store_wide(p.dr.data, p.dr.type, tap_offset(p, p.dr, h, j), dr);
  }
  if (lane != 0) return;
  if (p.dgain.data != nullptr) store_wide(p.dgain.data, p.dgain.type, h * p.dgain.sh, product);
  if (p.dshift.data != nullptr) store_wide(p.dshift.data, p.dshift.type, h * p.dshift.sh, sum);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
