// SPDX-License-Identifier: Apache-2.0
/// @file stencil_forward.hpp  The forward call of a convolution: AFT Eq. 6, DAFT Eq. 7, 8, without their subtraction.
#pragma once

#include "gates.hpp"
#include "stencil_queries.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Buffers of one thread, for one lane tile at a time.
template <class C>
struct stencil_worker {
  C* P = nullptr;
  C* rest = nullptr;
  query_block<C>* block = nullptr;

  void take(const stencil_shape& shape, scratch& memory) {
    P = memory.take<C>(shape.positions() * 2 * lanes<C>);
    rest = memory.take<C>(box_complement<C>::scratch_size(shape));
    block = memory.take<query_block<C>>(1);
  }
};

inline int worker_count(const cpu& exec, index_t items) {
  const int threads = thread_count(exec);
  return items < threads ? static_cast<int>(items) : threads;
}

/// The fields of a lane tile that a forward call reads and writes.
template <class C>
struct query_fields {
  const problem& p;
  lane_field<C> k, v, q, y, average, lse;

  query_fields(const problem& from, const lane_tile<C>& tile)
      : p(from),
        k(p.k, p.grid, tile, p.d / p.hk),
        v(p.v, p.grid, tile, 1),
        q(p.q, p.grid, tile, 1),
        y(p.y, p.grid, tile, 1),
        average(p.average, p.grid, tile, 1),
        lse(p.lse, p.grid, tile, p.d / p.hk) {}

  /// Gates and stores a block. y may be q itself, so a block's q is read before its y is written.
  void store_queries(index_t t0, index_t t1, query_block<C>& block) const {
    constexpr index_t L = lanes<C>;
    if (p.average.set) average.write(t0, t1, block.average);
    if (p.lse.set) lse.write(t0, t1, block.lse);
    if (p.gate_fn != gate::none) {
      C* const gates = block.sums;  // not needed any more
      q.read(t0, t1, gates);
      for (index_t i = 0; i < (t1 - t0) * L; i += L)
        store(block.average + i, load(block.average + i) * gate_value<C>(p.gate_fn, load(gates + i)));
    }
    y.write(t0, t1, block.average);
  }
};

/// Neighbouring lane tiles of a group are worked on one after another, while their cache lines' pages are at hand and
/// each can ask for the next one's keys; but in enough strips to keep the threads busy to the end.
inline index_t strip_count(index_t groups, index_t tiles, int threads) {
  const index_t wanted = (index_t{8} * threads + groups - 1) / groups;
  return threads == 1 ? 1 : (wanted < tiles ? wanted : tiles);
}

/// bias_kind::filter without a mask per pair. O(B T taps d) multiply-adds, O(T) scratch per thread and lane tile.
template <class C>
void stencil_forward(const problem& call, const cpu& exec) {
  if (call.B == 0 || call.Tq == 0 || call.d == 0) return;
  scratch memory(exec);
  const stencil_shape shape = shape_of(call);
  problem p = call;
  if (flatten(p, {&p.q, &p.k, &p.v, &p.y, &p.lse, &p.average})) p.grid = {1, 1, p.Tq};
  const lane_plan<C> plan(p.B, p.d);
  const index_t strips = strip_count(plan.groups, plan.tiles, thread_count(exec));
  const index_t items = strips * plan.groups;
  const int threads = worker_count(exec, items);
  stencil_table<C>* const tables = take_tables<C>(shape, plan, false, memory);
  stencil_worker<C>* const workers = memory.take<stencil_worker<C>>(threads);
  for (int i = 0; i < threads; ++i) (::new (workers + i) stencil_worker<C>{})->take(shape, memory);
  fill_tables<C>(p, shape, plan, exec, tables);
  const query_results wanted = p.lse.set ? query_results::logs : query_results::averages;
  parallel_for(items, threads, [&](index_t item, int thread) {
    const stencil_worker<C>& worker = workers[thread];
    const index_t strip = item % strips;
    const index_t end = plan.tiles * (strip + 1) / strips;
    box_complement<C> rest(shape, worker.rest);
    for (index_t i = plan.tiles * strip / strips; i < end; ++i) {
      const lane_tile<C> tile = plan.tile(item / strips, i);
      const query_fields<C> fields(p, tile);
      const query_fields<C> next(p, plan.tile(item / strips, i + 1 < end ? i + 1 : i));
      const stencil_table<C>& table = tables[i];
      column_scales<C> cs;
      fill_columns<C>(p, tile, table, worker.P, cs);
      fields.q.prefetch(0, query_block<C>::most, p.Tq);
      const query_fold<C> fold{p, shape, table, tile, cs, worker.P};
      fold_queries<C>(fold, wanted, rest, *worker.block, [&](index_t t0, index_t t1, query_block<C>& block) {
        fields.q.prefetch(t1, t1 + query_block<C>::most, p.Tq);
        next.k.prefetch(t0, t1, p.Tq);
        next.v.prefetch(t0, t1, p.Tq);
        fields.store_queries(t0, t1, block);
      });
    }
  });
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
