// SPDX-License-Identifier: Apache-2.0
/// @file maps/filter_entropy.cuh  The entropy of a filter's softmax (AFT Eq. 9) and its gradient.
#pragma once

#include "tap_softmax.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// sum p x over the taps, with x the distance from the largest one: all terms have one sign.
AFT_DEVICE double mean_distance(const filter_call& p, const tap_softmax& softmax, index_t h, int lane) {
  double sum = 0;
  for (index_t j = lane; j < p.taps(); j += warp_size) {
    const double x = softmax.distance(p, h, j), share = softmax.share(x);
    if (share != 0) sum += share * x;
  }
  return sum_of_lanes(sum);
}

/// C is double: a template, so that every file of a program may hold the kernel.
template <class C>
AFT_KERNEL(warp_size, 4)
filter_entropy_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  const tap_softmax softmax(p, h, lane);
  const C mean = mean_distance(p, softmax, h, lane);
  if (lane == 0) store_wide(p.out.data, p.out.type, h * p.out.sh, softmax.log_sum() - mean);
}

/// dr[j] = -dout p[j] (x[j] - sum p x).
template <class C>
AFT_KERNEL(warp_size, 4)
filter_entropy_gradient_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  const tap_softmax softmax(p, h, lane);
  const C mean = mean_distance(p, softmax, h, lane);
  const C dout = load_wide(p.dout.data, p.dout.type, h * p.dout.sh);
  for (index_t j = lane; j < p.taps() && p.dr.data != nullptr; j += warp_size) {
    const C x = softmax.distance(p, h, j), share = softmax.share(x);
    store_wide(p.dr.data, p.dr.type, tap_offset(p, p.dr, h, j), share == 0 ? 0 : dout * share * (mean - x));
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
