// SPDX-License-Identifier: Apache-2.0
/// @file stencil_worker.hpp  How a call is cut into items for threads, and the buffers of a thread.
#pragma once

#include "parallel.hpp"
#include "stencil_queries.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Lane tiles whose inputs are read together, for grids of so many positions.
template <class C>
inline index_t tile_group(index_t positions) {
  const index_t bytes = positions * 4 * lanes<C> * static_cast<index_t>(sizeof(C)) + 1;
  const index_t fit = tuning_stencil<C>::group_bytes / bytes;
  return fit < 1 ? 1 : (fit < tuning_stencil<C>::group ? fit : tuning_stencil<C>::group);
}

/// Lane tiles [first, last) of a group of batch elements, which a thread takes together.
struct stencil_item {
  index_t group = 0, first = 0, last = 0;

  /// The lane tile whose inputs are best asked for while tile i is worked on: as far ahead as tiles are read together,
  /// be it in `next`, which this thread is likely to take after this item. Empty where there is none.
  stencil_item ahead(index_t i, index_t together, const stencil_item& next) const {
    const index_t j = i + together;
    if (j < last) return {group, j, last};
    return {next.group, next.first + (j - last), next.last};
  }
};

/// Buffers of one thread.
template <class C>
struct stencil_worker {
  C* P = nullptr;      ///< two vectors a position, of `group` lane tiles
  C* gates = nullptr;  ///< q of one or two batch elements
  index_t group = 1;
  C* rest = nullptr;
  query_block<C>* block = nullptr;

  /// `batches` elements of the batch have gates kept, 0 to 2.
  void take(const stencil_shape& shape, index_t tiles, index_t batches, scratch& memory) {
    group = tiles;
    P = memory.take<C>(group * shape.positions() * 2 * lanes<C>);
    gates = memory.take<C>(group * shape.positions() * batches * lanes<C>);
    rest = memory.take<C>(box_complement<C>::scratch_size(shape));
    block = memory.take<query_block<C>>(1);
  }
};

/// A worker for each thread, with its buffers.
template <class Worker, class... Arguments>
inline Worker* take_workers(scratch& memory, int threads, const Arguments&... arguments) {
  Worker* const workers = memory.take<Worker>(threads);
  for (int i = 0; i < threads; ++i) {
    Worker one;
    one.take(arguments..., memory);
    if (workers != nullptr) ::new (workers + i) Worker(one);
  }
  return workers;
}

inline int worker_count(const cpu& exec, index_t items) {
  const int threads = thread_count(exec);
  return items < threads ? static_cast<int>(items) : threads;
}

/// Neighbouring lane tiles of a group are worked on one after another, while their cache lines' pages are at hand and
/// each can ask for the next one's keys; but in enough strips to keep the threads busy to the end.
inline index_t strip_count(index_t groups, index_t tiles, int threads) {
  const index_t wanted = (index_t{8} * threads + groups - 1) / groups;
  return threads == 1 ? 1 : (wanted < tiles ? wanted : tiles);
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
