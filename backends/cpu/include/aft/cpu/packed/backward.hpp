// SPDX-License-Identifier: Apache-2.0
/// @file packed/backward.hpp  Gradients of a packed call: of every sequence its own, of a shared bias their sum.
#pragma once

#include <optional>

#include "bias_sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Every gradient that is set. A bias whose gradient in the arithmetic type is beyond 12 MiB is summed a block of rows
/// at a time, by a pass of its own over the sequences.
template <class C>
[[gnu::cold, gnu::noinline]] void packed_backward(const backward_problem& p, const cpu& given, work_estimate estimate,
                                                  const sequence_gradients& run) {
  scratch memory(given);
  const sequence_order order = order_sequences(p, true, estimate, memory);
  const cpu exec = limit_threads(given, 2 * order.work);
  const bool bias_wanted = p.dbias.kind != bias_kind::none;
  const bool summed = bias_wanted && p.bias.batch == 1 && order.count > 1;
  std::optional<bias_sums<C>> sums;
  if (summed) sums.emplace(p, order);
  const bool blocked = summed && sums->blocked();
  index_t r0 = 0;

  const auto whole = [&](index_t i, int slot, const cpu& own) {
    backward_problem one = sequence_of(p, order.at(i).n);
    if (!summed) return run(one, own);
    if (blocked) one.dbias = {};
    if (!blocked) sums->redirect(one, slot);
    run(one, own);
    if (!blocked && !is_trial(own)) sums->add(one, sums->part_of(i), slot, own);
  };
  const auto block = [&](index_t i, int slot, const cpu& own) {
    const index_t end = min_of(r0 + sums->rows(), order.at(i).queries);
    if (end <= r0) return;
    backward_problem one = sequence_of(p, order.at(i).n, r0, end);
    one.dq = one.dk = one.dv = {};
    sums->redirect(one, slot);
    run(one, own);
    if (!is_trial(own)) sums->add(one, 0, slot, own);
  };
  const sequence_job all_of_one(whole), block_of_one(block);
  const std::size_t room = room_of<C>(p, summed ? sums->bytes() : 0);
  sequence_schedule schedule(order, summed && !blocked ? sums->parts() : 0, exec), blocks(order, 1, exec);
  schedule.measure(room, all_of_one);
  std::size_t bytes = schedule.bytes();
  if (blocked) {
    // Of all of them: windows of the first rows reach fewer keys than those of others.
    for (; r0 < p.packed->longest_queries; r0 += sums->rows()) blocks.measure(room, block_of_one);
    r0 = 0;
    bytes = max_of(bytes, blocks.bytes());
  }
  if (summed) sums->lay_out(blocked ? blocks : schedule, memory);
  std::byte* const arenas = memory.take<std::byte>(static_cast<index_t>(bytes));

  // Nothing below takes memory of the caller's, so from here on the call cannot fail half-way.
  const int threads = thread_count(exec);
  if (bias_wanted && !summed) {
    const bias_tensors tensors(p);
    // A bias for every sequence, or for one that is not empty.
    const index_t own = p.bias.batch == 1 ? 1 : p.packed->count;
    parallel_for(own, threads, [&](index_t b, int) {
      backward_problem one;
      if (p.bias.batch != 1 || order.count == 1)
        one = sequence_of(p, order.count == 1 && p.bias.batch == 1 ? order.at(0).n : b);
      clear_beyond<C>(tensors, b, p.bias.batch == 1 && order.count == 0 ? -1 : one.Tq, one.Tk);
    });
  }
  if (summed && !blocked) sums->begin(0, threads);
  schedule.run(arenas, all_of_one);
  if (summed && !blocked) sums->finish(true, threads);
  for (; blocked && r0 < p.packed->longest_queries; r0 += sums->rows()) {
    sums->begin(r0, threads);
    blocks.run(arenas, block_of_one);
    sums->finish(r0 + sums->rows() >= p.packed->longest_queries, threads);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
