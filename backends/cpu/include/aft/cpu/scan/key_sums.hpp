// SPDX-License-Identifier: Apache-2.0
/// @file scan/key_sums.hpp  The sum over a part of a sequence that rows of other ranks see.
#pragma once

#include <optional>

#include "cache_policy.hpp"
#include "keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// far_kind::sum. O(B Tk d), chunk by chunk as the rows of a call would see the keys.
template <class C>
void sum_keys(const problem& given, const cpu& exec, const scan::narrow_entries* narrow) {
  if (given.B == 0 || given.d == 0) return;
  problem p = given;
  p.Tq = p.Tk;
  p.causal = false;
  const int threads = p.B * p.d * p.Tk < scan_tuning<C>::serial ? 1 : thread_count(exec);
  const scan::scan_plan<C> plan(p, threads, narrow);
  const scan::key_scan<C> keys(p, plan, scan::cache_policy::of_forward(p, plan).uncached_keys);
  const int team =
      static_cast<int>(min_of(threads, plan.count() * max_of(index_t{1}, scan::key_scan<C>::chunks(p.Tk))));
  scratch memory(exec);
  per_thread<C> workspaces;
  std::optional<scan::key_prefix<C>> sums;
  const auto lay_out = [&](scratch& from) {
    workspaces = from.take_each<C>(scan::key_workspace<C>::size(plan.width()), team);
    sums.emplace(p, plan, keys, team, from);
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  sums->run(team, [&](int thread) { return scan::key_workspace<C>(workspaces.of(thread), plan.width()); });
  for (index_t i = 0; i < plan.count(); ++i) scan::end_sums<C>(p, plan.at(i), sums->total(i));
}

}  // namespace aft::inline AFT_ISA::cpu_impl
