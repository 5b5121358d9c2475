// SPDX-License-Identifier: Apache-2.0
/// @file stencil_worker.hpp  How a call is cut into items for threads, and the buffers of a thread.
#pragma once

#include "parallel.hpp"
#include "stencil_queries.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Buffers of one thread.
template <class C>
struct stencil_worker {
  C* P = nullptr;      ///< two vectors a position, of `group` lane tiles
  C* gates = nullptr;  ///< q of two batch elements at most
  C* rest = nullptr;
  query_block<C>* block = nullptr;

  void take(const stencil_shape& shape, index_t group, scratch& memory) {
    P = memory.take<C>(group * shape.positions() * 2 * lanes<C>);
    gates = memory.take<C>(group * shape.positions() * 2 * lanes<C>);
    rest = memory.take<C>(box_complement<C>::scratch_size(shape));
    block = memory.take<query_block<C>>(1);
  }
};

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
