// SPDX-License-Identifier: Apache-2.0
/// @file sparse/values.cuh  Gradients of the values of a sparse filter: of each tap the sum over the pairs that use it.
///
///     dvalues[h, i] = sum_{b, t, c} a[t,s,c] g[t,c] (v[s,c] - o[t,c]),  s = t + tap i,  c of head h
/// Nothing of that is shared among taps, so each sums its own pairs.
#pragma once

#include "taps.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int value_threads = 128;

/// Each tap's pairs, (b, t, channel of the head), in slices of their number: sums are (heads, taps, slices), taps in
/// the caller's order.
template <class C>
struct value_plan {
  index_t pairs = 0, slices = 1;
  C* sums = nullptr;
};

template <class C>
struct value_buffers {
  C sums[value_threads];
};

template <class C>
AFT_DEVICE C value_term(const device_call<C>& p, const tap_table<C>& table, const device_tap<C>& tap, index_t b,
                        index_t t, index_t c) {
  const index_t s = tapped_key(table, tap, point_of(table.queries, t), t);
  if (s < 0 || (pair_mask(p) && mask_hides(p, b, t, s))) return C(0);
  const C key = load_key(p, b, s, c);
  if (key == -number<C>::infinity) return C(0);
  const saved_row<C> u = load_saved_row(p, b, t, c);
  if (u.inverse == C(0)) return C(0);
  const C weight = pair_weight(u, key, tap.weight, tap.value);
  return add_difference(weight * (u.g * u.inverse), load<C>(p.v, p.positions, b, s, c), u.o, C(0));
}

/// A block for each slice of each tap. The threads' parts merge as a tree.
template <class C>
AFT_KERNEL(value_threads, 4)
sparse_values_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER tap_table<C> table,
                     const AFT_PARAMETER value_plan<C> plan) {
  value_buffers<C>& buffer = shared<value_buffers<C>>();
  const index_t own = quotient(block_index(), plan.slices);
  const index_t slice = block_index() - own * plan.slices;
  const index_t h = quotient(own, table.count);
  const device_tap<C>& tap = table.taps[own];
  const index_t width = quotient(p.d, table.heads);
  const index_t length = ceil_div(plan.pairs, plan.slices);
  const index_t begin = slice * length;
  const index_t end = begin + length < plan.pairs ? begin + length : plan.pairs;
  C sum = C(0), part = C(0);
  int added = 0;
  // A pair that the tap hides counts as none, whatever it holds.
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t i = begin + thread_index(); i < end && tap.weight.mantissa != C(0); i += value_threads) {
    const index_t row = quotient(i, width);
    const index_t b = quotient(row, p.Tq);
    part += value_term(p, table, tap, b, row - b * p.Tq, h * width + i - row * width);
    if (++added % tuning::depth != 0) continue;
    sum += part;
    part = C(0);
  }
  buffer.sums[thread_index()] = sum + part;
  for (int half = value_threads / 2; half > 0; half /= 2) {
    sync();
    if (thread_index() < half) buffer.sums[thread_index()] += buffer.sums[thread_index() + half];
  }
  if (thread_index() == 0) plan.sums[(h * table.count + tap.source) * plan.slices + slice] = buffer.sums[0];
}

/// The slices of each tap in their order, to the place that the caller has for it: a stride of 0 has one for all heads,
/// or for all taps, and gets their sum.
template <class C>
AFT_KERNEL(tap_table_threads, 2)
store_values_kernel(const AFT_PARAMETER device_bias out, const AFT_PARAMETER tap_table<C> table,
                    const AFT_PARAMETER value_plan<C> plan) {
  const index_t i = block_index() * tap_table_threads + thread_index();
  const index_t heads = out.r_sh == 0 ? table.heads : 1, taps = out.r_s2 == 0 ? table.count : 1;
  const index_t columns = out.r_s2 == 0 ? 1 : table.count;
  if (i >= (out.r_sh == 0 ? 1 : table.heads) * columns) return;
  const index_t first = quotient(i, columns), tap = i - first * columns;
  C sum = C(0);
  for (index_t h = first; h < first + heads; ++h)
    for (index_t j = tap; j < tap + taps; ++j) {
      C own = C(0);
      for (index_t slice = 0; slice < plan.slices; ++slice)
        own += plan.sums[(h * table.count + j) * plan.slices + slice];
      sum += own;
    }
  store<C>(out.r, out.r_type, first * out.r_sh + tap * out.r_s2, sum);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
