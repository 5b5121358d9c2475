// SPDX-License-Identifier: Apache-2.0
/// @file stencil/worker.hpp  How a call is cut into items for threads, and the buffers of a thread.
#pragma once

#include "../runtime/parallel.hpp"
#include "epilogue.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Lane tiles that are read or asked for together: `most`, or as many as have `vectors` a position in a second-level
/// cache.
template <class C>
inline index_t tile_group(index_t positions, index_t vectors, index_t most) {
  const index_t bytes = positions * vectors * lanes<C> * static_cast<index_t>(sizeof(C)) + 1;
  const index_t fit = tuning_stencil<C>::group_bytes / bytes;
  return fit < 1 ? 1 : min_of(fit, most);
}

/// Lane tiles [first, last) of a group of batch elements, which a thread takes together.
struct stencil_item {
  index_t group = 0, first = 0, last = 0;

  index_t count() const { return last - first; }
  /// At most n tiles from the i-th on.
  stencil_item some(index_t i, index_t n) const { return {group, i, min_of(i + n, last)}; }
};

/// What is asked for while a lane tile is worked on: a part of the rows of the tiles that are read together after those
/// at hand. All their lines of a row at once, as they will be read: with a line of every row for each tile depthwise
/// conv took 1.03 times as long (Emerald Rapids, 2026-11, 14 x 14 x 384 floats).
struct stencil_prefetch {
  stencil_item tiles;  ///< none after the last item: then it says a first tile all the same, which exists
  index_t row = 0, rows = 0, of = 0;

  /// Of tile i, where the n-th and every n-th after it begin a group; `next` is the item that this thread is likely to
  /// take after this one.
  stencil_prefetch(const stencil_item& own, index_t i, index_t n, const stencil_item& next, index_t T) : of(T) {
    const index_t in_group = (i - own.first) % n;
    const stencil_item group = own.some(i - in_group, n);
    tiles = group.last < own.last ? own.some(group.last, n) : next.some(next.first, n);
    row = T * in_group / group.count();
    rows = T * (in_group + 1) / group.count() - row;
  }

  /// The rows to ask for when t of the tile's own are done.
  index_t at(index_t t) const { return row + rows * t / of; }
  /// ask(t0, t1) for those from `asked` on, which it moves.
  template <class Ask>
  [[gnu::always_inline]] void advance(index_t t, index_t& prefetched, const Ask& prefetch_into) const {
    const index_t until = at(t);
    if (until <= prefetched) return;
    prefetch_into(prefetched, until);
    prefetched = until;
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
/// each can ask for the next one's keys; but in enough segments to keep the threads busy to the end.
inline index_t segment_count(index_t groups, index_t tiles, int threads) {
  const index_t wanted = ceil_div(index_t{8} * threads, groups);
  return threads == 1 ? 1 : min_of(wanted, tiles);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
