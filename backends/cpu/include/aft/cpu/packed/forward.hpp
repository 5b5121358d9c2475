// SPDX-License-Identifier: Apache-2.0
/// @file packed/forward.hpp  The forward call on packed sequences, by whichever engine serves one of them.
#pragma once

#include "schedule.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// One sequence by one of the engines.
using sequence_results = function_ref<void(const problem&, const cpu&)>;

/// y, lse and average of all sequences.
template <class C>
[[gnu::cold, gnu::noinline]] void packed_forward(const problem& p, const cpu& given, work_estimate estimate,
                                                 const sequence_results& run) {
  scratch memory(given);
  const sequence_order order = order_sequences(p, false, estimate, memory);
  const cpu exec = limit_threads(given, order.work);
  const auto forward = [&](index_t i, int, const cpu& own) { run(sequence_of(p, order.at(i).n), own); };
  const sequence_job job(forward);
  sequence_schedule schedule(order, 0, exec);
  schedule.measure(room_of<C>(p, 0), job);
  schedule.run(memory.take<std::byte>(static_cast<index_t>(schedule.bytes())), job);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
