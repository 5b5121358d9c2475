// SPDX-License-Identifier: Apache-2.0
/// @file maps/filter_call.cuh  What kernels that look at a filter alone are given: a warp a head, in double, as a
/// filter has few taps.
#pragma once

#include <aft/core/problem/filter_problem.hpp>

#include "../tensor/wide_access.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// filter_tensor and filter_problem with plain arrays.
struct device_filter {
  std::byte* data = nullptr;
  dtype type = dtype::other;
  index_t sh = 0, s0 = 0, s1 = 0, s2 = 0;
};
struct filter_call {
  double tau = 1;
  index_t heads = 0, n0 = 1, n1 = 1, n2 = 1;
  device_filter r{}, noise{}, gain{}, shift{}, dout{};
  device_filter out{}, dr{}, dgain{}, dshift{};

  AFT_HOST_DEVICE index_t taps() const { return n0 * n1 * n2; }
};

AFT_DEVICE index_t tap_offset(const filter_call& p, const device_filter& f, index_t h, index_t j) {
  return h * f.sh + j / p.n2 / p.n1 * f.s0 + j / p.n2 % p.n1 * f.s1 + j % p.n2 * f.s2;
}
AFT_DEVICE double load_tap(const filter_call& p, const device_filter& f, index_t h, index_t j) {
  return load_wide(f.data, f.type, tap_offset(p, f, h, j));
}

/// The sum over the lanes, the same bits in each: both sides of every exchange add the same two numbers.
AFT_DEVICE double sum_of_lanes(double x) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

inline device_filter to_device(const filter_tensor& f) {
  return {f.data, f.type, f.sh, f.sj[0], f.sj[1], f.sj[2]};
}
inline filter_call to_filter_call(const filter_problem& p) {
  filter_call c;
  c.tau = p.tau;
  c.heads = p.heads;
  c.n0 = p.taps[0];
  c.n1 = p.taps[1];
  c.n2 = p.taps[2];
  c.r = to_device(p.r);
  c.noise = to_device(p.noise);
  c.gain = to_device(p.gain);
  c.shift = to_device(p.shift);
  c.dout = to_device(p.dout);
  c.out = to_device(p.out);
  c.dr = to_device(p.dr);
  c.dgain = to_device(p.dgain);
  c.dshift = to_device(p.dshift);
  return c;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
