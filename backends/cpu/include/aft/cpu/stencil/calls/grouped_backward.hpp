// SPDX-License-Identifier: Apache-2.0
/// @file stencil/calls/grouped_backward.hpp  The gradients of AFT-conv with keys grouped to heads: which calls they
/// serve, and how these are cut into items.
#pragma once

#include <numeric>

#include "../../runtime/parallel.hpp"
#include "../backward/grouped.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Whether a call goes this way. It must not depend on B, on which no element's bits may depend.
template <class C>
inline bool groups_gradients(const backward_problem& p, const channel_head_groups<C>& head_groups) {
  return head_groups.wide() && p.Tq <= tuning_stencil<C>::grouped_positions && p.lse.set && p.average.set &&
         p.hk % p.bias.heads == 0 && (p.dk.set || p.dv.set || p.dbias.kind != bias_kind::none);
}

/// Every gradient that is set. `p` is flattened; B, Tq and d are not 0.
template <class C>
void stencil_grouped_backward(const backward_problem& p, const stencil_shape& shape, const lane_plan<C>& plan,
                              const channel_head_groups<C>& head_groups, const cpu& exec, scratch& memory) {
  const stencil_shape back = shape.transposed();
  const bool filter_wanted = p.dbias.kind != bias_kind::none;
  const bool keys_wanted = p.dk.set || p.dv.set;
  const index_t pairs = (p.B + 1) / 2;
  const index_t parts =
      filter_wanted && pairs > tuning_stencil<C>::batch_parts ? tuning_stencil<C>::batch_parts : pairs;
  // A segment has whole classes, so that their sums are one thread's.
  const index_t unit = std::lcm(head_groups.size, lanes<C>) / lanes<C>;
  const index_t units = ceil_div(plan.tiles, unit);
  const index_t segments = segment_count(parts, units, thread_count(exec));
  const int threads = worker_count(exec, segments * parts);
  const auto segment_at = [&](index_t i) {
    grouped_segment s;
    const index_t first = units * i / segments * unit;
    const index_t last = units * (i + 1) / segments * unit;
    s.first = first;
    s.last = min_of(last, plan.tiles);
    s.head_group_first = first * lanes<C> / head_groups.size;
    s.head_group_last = last < plan.tiles ? last * lanes<C> / head_groups.size : head_groups.count;
    s.width = lanes<C>;
    return s;
  };
  index_t most = 0;
  for (index_t i = 0; i < segments; ++i) most = max_of(most, segment_at(i).head_group_tiles());

  const index_t partial_size = head_groups.count * shape.tap_count();
  stencil_table<C>* tables = nullptr;
  stencil_table<C>* head_group_tables = nullptr;
  grouped_sums<C>* workers = nullptr;
  C* partials = nullptr;
  const auto lay_out = [&](scratch& from) {
    tables = take_tables<C>(shape, plan.tiles, true, from);
    head_group_tables = take_tables<C>(shape, segments * most, true, from);
    workers = take_workers<grouped_sums<C>>(from, threads, shape, most);
    partials = from.take<C>(filter_wanted ? parts * partial_size : 0);
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;

  parallel_for(plan.tiles, threads, [&](index_t i, int) { fill_table<C>(p, shape, plan.tile(0, i), tables[i]); });
  parallel_for(segments * most, threads, [&](index_t i, int) {
    const grouped_segment s = segment_at(i / most);
    const index_t first = s.head_group_first + i % most * lanes<C>;
    if (first < s.head_group_last)
      fill_table<C>(p, shape, head_groups.tile(0, first, s.head_group_last), head_group_tables[i]);
  });
  parallel_for(segments * parts, threads, [&](index_t item, int thread) {
    const index_t part = item / segments;
    const grouped_segment segment = segment_at(item % segments);
    C* const partial = partials + part * partial_size;
    const auto at = [&](index_t head_group) { return partial + head_group * shape.tap_count(); };
    for (C* to = at(segment.head_group_first); filter_wanted && to < at(segment.head_group_last); ++to) *to = C(0);
    const grouped_gradients<C> gradients{p,
                                         shape,
                                         back,
                                         plan,
                                         head_groups,
                                         tables,
                                         head_group_tables + item % segments * most,
                                         segment,
                                         keys_wanted,
                                         filter_wanted,
                                         workers[thread]};
    const index_t end = pairs * (part + 1) / parts;
    for (index_t pair = pairs * part / parts; pair < end; ++pair) {
      const index_t b = 2 * pair;
      gradients.run(b, b + 1 < p.B ? 2 : 1, pair + 1 < end ? b + 2 : b, partial);
    }
  });
  if (!filter_wanted) return;
  const index_t of_head = head_groups.count / p.dbias.heads;
  write_filter_gradient<C>(p, shape, exec, [&](index_t h, index_t tap) {
    C sum = C(0);
    for (index_t part = 0; part < parts; ++part)
      for (index_t c = h * of_head; c < (h + 1) * of_head; ++c)
        sum += partials[part * partial_size + c * shape.tap_count() + tap];
    return sum;
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
