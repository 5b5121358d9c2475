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

  /// Gates and stores a block. y may be q itself: q of these lanes was read before.
  /// `gates` holds q of all queries.
  void store_queries(index_t t0, index_t t1, query_block<C>& block, const C* gates) const {
    constexpr index_t L = lanes<C>;
    if (p.average.set) average.write(p, t0, t1, block.average);
    if (p.lse.set) lse.write(p, t0, t1, block.lse);
    const bool gated = p.gate_fn != gate::none;
    const C* const from = gates + t0 * L;
    if (y.whole()) {
      C* const to = y.row(t0);
      if (y.passes_cache(p)) {
        gate_rows<true>(block.average, t1 - t0, from, to, y.step());
      } else {
        gate_rows<false>(block.average, t1 - t0, from, to, y.step());
      }
      return;
    }
    if (gated) {
      for (index_t i = 0; i < (t1 - t0) * L; i += L)
        store(block.average + i, load(block.average + i) * gate_value<C>(p.gate_fn, load(from + i)));
    }
    y.write(p, t0, t1, block.average);
  }

 private:
  /// The common case without staging.
  template <bool PastCache>
  [[gnu::flatten]] void gate_rows(const C* average_rows, index_t n, const C* from, C* to, index_t to_step) const {
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
        put(to + i * to_step, load(average_rows + i * L) * gate_detail::sigmoid<C>(load(from + i * L)));
    } else if (g == gate::none) {
      for (index_t i = 0; i < n; ++i) put(to + i * to_step, load(average_rows + i * L));
    } else {
      for (index_t i = 0; i < n; ++i)
        put(to + i * to_step, load(average_rows + i * L) * gate_value<C>(g, load(from + i * L)));
    }
  }
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
