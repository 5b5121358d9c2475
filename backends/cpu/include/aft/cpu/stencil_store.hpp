// SPDX-License-Identifier: Apache-2.0
/// @file stencil_store.hpp  From the averages of a lane tile to y: gate and store.
#pragma once

#include "gates.hpp"
#include "stencil_queries.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The fields of a lane tile that a forward call reads and writes.
template <class C>
struct query_fields {
  const problem& p;
  lane_rows<C> k, v, q, y, average, lse;

  query_fields(const problem& from, const lane_tile<C>& tile)
      : p(from),
        k(p.k, p.grid, tile, p.d / p.hk),
        v(p.v, p.grid, tile, 1),
        q(p.q, p.grid, tile, 1),
        y(p.y, p.grid, tile, 1),
        average(p.average, p.grid, tile, 1),
        lse(p.lse, p.grid, tile, p.d / p.hk) {}

  /// Asks for rows of all that the tile reads, while another tile is worked on: a lane tile is one cache line a row,
  /// which the hardware does not foresee.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1) const {
    k.prefetch(t0, t1);
    v.prefetch(t0, t1);
    if (p.gate_fn != gate::none) q.prefetch(t0, t1);
  }

  void touch_queries() const {
    if (p.gate_fn != gate::none) q.touch(p.Tq);
  }

  /// Gates and stores a block. y may be q itself, so a block's q is read before its y is written.
  void store_queries(index_t t0, index_t t1, query_block<C>& block) const {
    constexpr index_t L = lanes<C>;
    if (p.average.set) average.write(p, t0, t1, block.average);
    if (p.lse.set) lse.write(p, t0, t1, block.lse);
    const bool gated = p.gate_fn != gate::none;
    if (y.whole() && (!gated || q.whole())) {
      C* const to = y.row(t0);
      const C* const from = gated ? q.row(t0) : to;
      const index_t from_step = gated ? q.step() : y.step();
      if (y.passes_cache(p)) {
        gate_rows<true>(block.average, t1 - t0, from, from_step, to, y.step());
      } else {
        gate_rows<false>(block.average, t1 - t0, from, from_step, to, y.step());
      }
      return;
    }
    if (gated) {
      C* const gates = block.sums;  // not needed any more
      q.read(t0, t1, gates);
      for (index_t i = 0; i < (t1 - t0) * L; i += L)
        store(block.average + i, load(block.average + i) * gate_value<C>(p.gate_fn, load(gates + i)));
    }
    y.write(p, t0, t1, block.average);
  }

 private:
  /// The common case without staging; every value of a row is read before it is overwritten.
  template <bool PastCache>
  [[gnu::flatten]] void gate_rows(const C* average_rows, index_t n, const C* from, index_t from_step, C* to,
                                  index_t to_step) const {
    constexpr index_t L = lanes<C>;
    const gate g = p.gate_fn;
    const auto put = [](C * at, const vec<C>& x) __attribute__((always_inline)) {
      if constexpr (PastCache) {
        store_around<C>(at, x);
      } else {
        store(at, x);
      }
    };
    if (g == gate::sigmoid) {  // the default is worth a loop without a switch
      for (index_t i = 0; i < n; ++i)
        put(to + i * to_step, load(average_rows + i * L) * gate_detail::sigmoid<C>(load(from + i * from_step)));
    } else if (g == gate::none) {
      for (index_t i = 0; i < n; ++i) put(to + i * to_step, load(average_rows + i * L));
    } else {
      for (index_t i = 0; i < n; ++i)
        put(to + i * to_step, load(average_rows + i * L) * gate_value<C>(g, load(from + i * from_step)));
    }
  }
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
