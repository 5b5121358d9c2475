// SPDX-License-Identifier: Apache-2.0
/// @file maps/gumbel_filter.cuh  A filter times a sample of its Gumbel softmax (AFT Eq. 10), its gradient, and the form
/// of inference.
#pragma once

#include "tap_softmax.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// C is double: a template, so that every file of a program may hold the kernel.
template <class C>
AFT_KERNEL(warp_size, 4)
gumbel_filter_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  const tap_softmax sample(p, h, lane);
  for (index_t j = lane; j < p.taps(); j += warp_size) {
    const C share = sample.share(sample.distance(p, h, j));
    store_wide(p.out.data, p.out.type, tap_offset(p, p.out, h, j), load_tap(p, p.r, h, j) * share);
  }
}

/// With p the sample and a = dout r: dr[j] = dout[j] p[j] + p[j]/tau (a[j] - sum p a). What is added to a is taken off
/// again, since p adds up to 1: the largest tap's own, whose p is nearly 1 where the others' are small.
template <class C>
AFT_KERNEL(warp_size, 4)
gumbel_filter_gradient_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  if (p.taps() == 0 || p.dr.data == nullptr) return;
  const tap_softmax sample(p, h, lane);
  const C base = load_tap(p, p.dout, h, sample.largest) * load_tap(p, p.r, h, sample.largest);
  C mean = 0;
  for (index_t j = lane; j < p.taps(); j += warp_size) {
    const C share = sample.share(sample.distance(p, h, j));
    if (share != 0) mean += share * (load_tap(p, p.dout, h, j) * load_tap(p, p.r, h, j) - base);
  }
  mean = sum_of_lanes(mean);
  for (index_t j = lane; j < p.taps(); j += warp_size) {
    const C share = sample.share(sample.distance(p, h, j));
    const C dout = load_tap(p, p.dout, h, j);
    const C slope = (dout * load_tap(p, p.r, h, j) - base) - mean;
    store_wide(p.dr.data, p.dr.type, tap_offset(p, p.dr, h, j), share == 0 ? 0 : share * (dout + slope / p.tau));
  }
}

/// Of several largest taps the first; NaN is larger than any number.
template <class C>
AFT_KERNEL(warp_size, 4)
largest_tap_kernel(const AFT_PARAMETER filter_call p) {
  const index_t h = block_index();
  const int lane = thread_index();
  const index_t n = p.taps();
  C most = -number<C>::infinity;
  std::int64_t at = n;
  // Lanes without taps hold no candidate, which is what n says.
  const auto take = [&](C x, std::int64_t j) {
    if (j == n) return;
    const bool above = x != x ? most == most : x > most;
    const bool level = x == most || (x != x && most != most);
    if (at == n || above || (level && j < at)) {
      most = x;
      at = j;
    }
  };
  for (index_t j = lane; j < n; j += warp_size) take(load_tap(p, p.r, h, j), j);
  for (int mask = warp_size / 2; mask > 0; mask /= 2) {
    const C other = shuffle_xor(most, mask);
    const std::int64_t place = shuffle_xor(at, mask);
    take(other, place);
  }
  for (index_t j = lane; j < n; j += warp_size)
    store_wide(p.out.data, p.out.type, tap_offset(p, p.out, h, j), j == at ? load_tap(p, p.r, h, j) : 0);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
