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

  /// Brings q into the cache all at once; block by block there are too few loads under way to hide their latency.
  void touch_queries() const {
    if (p.gate_fn == gate::none || !q.whole_rows()) return;
    const index_t size = size_of(p.q.type);
    const volatile std::byte* row = p.q.data + q.base * size;
    for (index_t t = 0; t < p.Tq; ++t, row += p.q.sx[2] * size) (void)*row;
  }

  /// Gates and stores a block. y may be q itself, so a block's q is read before its y is written.
  void store_queries(index_t t0, index_t t1, query_block<C>& block) const {
    constexpr index_t L = lanes<C>;
    if (p.average.set) average.write(t0, t1, block.average);
    if (p.lse.set) lse.write(t0, t1, block.lse);
    const bool gated = p.gate_fn != gate::none;
    if (y.whole_rows() && p.y.type == dtype_of<C> && (!gated || (q.whole_rows() && p.q.type == dtype_of<C>))) {
      C* to = reinterpret_cast<C*>(p.y.data) + y.base + t0 * p.y.sx[2];
      const C* from = gated ? reinterpret_cast<const C*>(p.q.data) + q.base + t0 * p.q.sx[2] : to;
      const index_t to_step = p.y.sx[2];
      const index_t from_step = gated ? p.q.sx[2] : to_step;
      gate_rows(block.average, t1 - t0, from, from_step, to, to_step);
      return;
    }
    if (gated) {
      C* const gates = block.sums;  // not needed any more
      q.read(t0, t1, gates);
      for (index_t i = 0; i < (t1 - t0) * L; i += L)
        store(block.average + i, load(block.average + i) * gate_value<C>(p.gate_fn, load(gates + i)));
    }
    y.write(t0, t1, block.average);
  }

 private:
  /// The common case without staging; every value of a row is read before it is overwritten.
  [[gnu::flatten]] void gate_rows(const C* average_rows, index_t n, const C* from, index_t from_step, C* to,
                                  index_t to_step) const {
    constexpr index_t L = lanes<C>;
    const gate g = p.gate_fn;
    if (g == gate::sigmoid) {  // the default is worth a loop without a switch
      for (index_t i = 0; i < n; ++i)
        store(to + i * to_step, load(average_rows + i * L) * gate_detail::sigmoid<C>(load(from + i * from_step)));
    } else if (g == gate::none) {
      for (index_t i = 0; i < n; ++i) store(to + i * to_step, load(average_rows + i * L));
    } else {
      for (index_t i = 0; i < n; ++i)
        store(to + i * to_step, load(average_rows + i * L) * gate_value<C>(g, load(from + i * from_step)));
    }
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
      const stencil_table<C>& table = tables[i];
      column_scales<C> cs;
      fill_columns<C>(p, tile, table, worker.P, cs);
      fields.touch_queries();
      const query_fold<C> fold{p, shape, table, tile, cs, worker.P};
      fold_queries<C>(fold, wanted, rest, *worker.block, [&](index_t t0, index_t t1, query_block<C>& block) {
        fields.store_queries(t0, t1, block);
      });
    }
  });
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
