// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/far_keys.hpp  The gradients of keys from what rows of other ranks give.
#pragma once

#include "chunk.hpp"
#include "far_sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// far_kind::spread: dk and dv, those that are set. O(B Tk d).
template <class C>
void spread_gradients(const backward_problem& given, const cpu& exec, const scan::narrow_entries* narrow) {
  if (given.B == 0 || given.d == 0 || given.Tk == 0) return;
  backward_problem p = given;
  p.Tq = p.Tk;
  p.causal = false;
  const int threads = p.B * p.d * p.Tk < scan_tuning<C>::serial ? 1 : thread_count(exec);
  const scan::scan_plan<C> plan(p, threads, narrow);
  const scan::backward_pass<C> pass(p, plan);
  const index_t chunks = scan::key_scan<C>::chunks(p.Tk), one = scan::reverse_lanes<C>::arrays * plan.width();
  const int team = static_cast<int>(min_of(threads, plan.count() * chunks));
  scratch memory(exec);
  per_thread<C> workspaces;
  C* sums = nullptr;
  const auto lay_out = [&](scratch& from) {
    workspaces = from.take_each<C>(scan::backward_workspace<C>::size(plan.width(), 1), team);
    sums = from.take<C>(plan.count() * one);
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  const auto sums_of = [&](index_t i) { return scan::reverse_lanes<C>(sums + i * one, plan.width()); };
  for (index_t i = 0; i < plan.count(); ++i) scan::begin_reverse<C>(p, plan.at(i), plan.width(), sums_of(i));
  parallel_for(plan.count() * chunks, team, item_order::runs, [&](index_t n, int thread) {
    const auto [i, c] = plan.part_of(n, chunks);
    scan::backward_workspace<C> mine(workspaces.of(thread), plan.width());
    mine.after = sums_of(i);
    const scan::column_block x = plan.at(i);
    const index_t s0 = c * scan_tuning<C>::chunk, end = pass.keys().end(x);
    pass.key_gradients(x, s0, max_of(s0, min_of(s0 + scan_tuning<C>::chunk, end)), mine);
    if (c + 1 == chunks) pass.no_gradients(x, end, mine);
    fence_stores();
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
