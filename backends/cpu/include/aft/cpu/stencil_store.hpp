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

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
