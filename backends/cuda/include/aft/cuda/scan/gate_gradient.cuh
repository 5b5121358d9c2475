// SPDX-License-Identifier: Apache-2.0
/// @file scan/gate_gradient.cuh  What every backward call begins with: g = dy gate(q), and dq.
#pragma once

#include "../fold/saved_rows.cuh"
#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// g = dy gate(q) into its scratch, and dq = dy gate'(q) o where it is wanted. A row that saw no key gets exact zeros,
/// whatever dy holds there. `plan` has the queries.
template <class C, class Access = any_layout>
AFT_KERNEL(scan_threads, 2)
gate_gradient_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<C> plan) {
  const scan_place at = scan_place::of(plan);
  if (!at.exists || !at.col.exists) return;
  const auto rows = saved_column<C, Access>::of(p, at.col);
  const auto dy = tensor_column::of(p.dy, at.col.b, at.col.c);
  const bool gated = p.gate_fn != gate::none;
  tensor_column q, dq;
  if (gated) q = tensor_column::of(p.q, at.col.b, at.col.c);
  if (p.dq.set) dq = tensor_column::of(p.dq, at.col.b, at.col.c);
  C* const g = p.g + at.col.b * p.Tq * p.d + at.col.c;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t t = at.begin; t < at.end; t += burst<C>) {
    const int count = part_of_burst<C>(at.end - t);
    C incoming[burst<C>], q_of_row[burst<C>] = {}, average[burst<C>] = {};
    dy.template read<Access>(p.dy, p.positions, t, 0, count, incoming);
    if (gated) q.template read<Access>(p.q, p.positions, t, 0, count, q_of_row);
    if (gated && p.dq.set)
      rows.average.template read<typename saved_steps<Access>::access>(p.average, p.positions, t, 0, count, average);
    const std::uint32_t none = rows.empty_rows(p, t, count);
    C slopes[burst<C>];
    if (gated && p.dq.set) gate_slopes<C>(p.gate_fn, q_of_row, slopes);
    if (gated) gate_values<C>(p.gate_fn, q_of_row, q_of_row);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) {
      if (i >= count) continue;
      const bool empty = (none >> i & 1u) != 0;
      C value = incoming[i], slope = C(0);
      if (gated) {
        value = incoming[i] * q_of_row[i];
        if (p.dq.set) slope = incoming[i] * slopes[i] * average[i];
      }
      g[(t + i) * p.d] = empty ? C(0) : value;
      if (p.dq.set) dq.template write<Access>(p.dq, p.positions, t + i, empty ? C(0) : slope);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
