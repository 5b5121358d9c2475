// SPDX-License-Identifier: Apache-2.0
/// @file plan/to_call.cuh  A validated problem as kernels take it.
#pragma once

#include "../tensor/call.cuh"
#include "uniform_scan.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline grid to_grid(const std::array<index_t, 3>& a) {
  return {a[0], a[1], a[2]};
}

inline device_bias to_bias(const problem& p) {
  device_bias s;
  s.kind = p.bias.kind;
  s.heads = p.bias.heads;
  s.batched = p.bias.batch > 1;
  s.w = p.bias.w;
  s.u = p.bias.u;
  s.v = p.bias.v;
  s.rank = p.bias.rank;
  s.r = p.bias.r;
  s.r_type = p.bias.r_type;
  s.r_sh = p.bias.r_sh;
  s.r_s0 = p.bias.r_sj[0];
  s.r_s1 = p.bias.r_sj[1];
  s.r_s2 = p.bias.r_sj[2];
  s.taps = to_grid(p.taps);
  s.left = to_grid(p.left);
  s.bounded = p.win.bounded;
  s.before = p.win.before;
  s.after = p.win.after;
  return s;
}

template <class C>
device_call<C> to_call(const problem& p) {
  device_call<C> c;
  c.B = p.B;
  c.Tq = p.Tq;
  c.Tk = p.Tk;
  c.d = p.d;
  c.hk = p.hk;
  c.positions = to_grid(p.grid);
  c.q = to_tensor(p.q, c.positions);
  c.k = to_tensor(p.k, c.positions);
  c.v = to_tensor(p.v, c.positions);
  c.y = to_tensor(p.y, c.positions);
  c.lse = to_tensor(p.lse, c.positions);
  c.average = to_tensor(p.average, c.positions);
  c.bias = to_bias(p);
  c.causal = p.causal;
  c.diagonal = p.causal ? p.first_query : 0;
  c.excluded = p.excluded;
  const reach r = reach_of(p);
  c.reach_before = r.before;
  c.reach_after = r.after;
  c.gate_fn = p.gate_fn;
  c.mask = p.mask;
  c.mask_sb = p.mask_sb;
  c.mask_st = p.mask_st;
  c.mask_ss = p.mask_ss;
  c.lengths = p.lengths;
  c.query_lengths = p.query_lengths;
  c.state_channels = p.hk % p.bias.heads == 0 ? p.hk : p.d;
  return c;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
