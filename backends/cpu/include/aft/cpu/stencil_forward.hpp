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
    P = memory.take<C>((shape.positions() + stencil_padding<C>) * 2 * lanes<C>);
    rest = memory.take<C>(box_complement<C>::scratch_size(shape));
    block = memory.take<query_block<C>>(1);
  }
};

inline int worker_count(const cpu& exec, index_t items) {
  const int threads = thread_count(exec);
  return items < threads ? static_cast<int>(items) : threads;
}

/// Gates and stores a block. y may be q itself, so a block's q is read before its y is written.
template <class C>
inline void store_queries(const problem& p, const lane_tile<C>& tile, index_t t0, index_t t1, query_block<C>& block) {
  constexpr index_t L = lanes<C>;
  if (p.average.set) lane_field<C>(p.average, p.grid, tile, 1).write(t0, t1, block.average);
  if (p.lse.set) lane_field<C>(p.lse, p.grid, tile, p.d / p.hk).write(t0, t1, block.lse);
  if (p.gate_fn != gate::none) {
    C* const q = block.sums;  // not needed any more
    lane_field<C>(p.q, p.grid, tile, 1).read(t0, t1, q);
    for (index_t i = 0; i < (t1 - t0) * L; i += L)
      store(block.average + i, load(block.average + i) * gate_value<C>(p.gate_fn, load(q + i)));
  }
  lane_field<C>(p.y, p.grid, tile, 1).write(t0, t1, block.average);
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
  const index_t items = plan.tiles * plan.groups;
  const int threads = worker_count(exec, items);
  stencil_table<C>* const tables = take_tables<C>(shape, plan, false, memory);
  stencil_worker<C>* const workers = memory.take<stencil_worker<C>>(threads);
  for (int i = 0; i < threads; ++i) (::new (workers + i) stencil_worker<C>{})->take(shape, memory);
  fill_tables<C>(p, shape, plan, exec, tables);
  const query_results wanted = p.lse.set ? query_results::logs : query_results::averages;
  parallel_for(items, threads, [&](index_t item, int thread) {
    const stencil_worker<C>& worker = workers[thread];
    const lane_tile<C> tile = plan.tile(item % plan.groups, item / plan.groups);
    const stencil_table<C>& table = tables[item / plan.groups];
    column_scales<C> cs;
    fill_columns<C>(p, tile, table, worker.P, cs);
    box_complement<C> rest(shape, worker.rest);
    const query_fold<C> fold{p, shape, table, tile, cs, worker.P};
    fold_queries<C>(fold, wanted, rest, *worker.block,
                    [&](index_t t0, index_t t1, query_block<C>& block) { store_queries<C>(p, tile, t0, t1, block); });
  });
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
