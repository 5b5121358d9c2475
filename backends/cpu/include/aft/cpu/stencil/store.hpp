// SPDX-License-Identifier: Apache-2.0
/// @file stencil/store.hpp  The fields of a forward call, lane tile by lane tile.
#pragma once

#include "../tensor/visible_keys.hpp"
#include "epilogue.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The fields of a lane tile that a forward call writes.
template <class C>
struct query_outputs {
  const problem& p;
  lane_rows<C> y, average, lse;

  query_outputs(const problem& from, const lane_tile<C>& tile)
      : p(from), y(p.y, p.grid, tile, 1), average(p.average, p.grid, tile, 1), lse(p.lse, p.grid, tile, p.d / p.hk) {}

  /// For query_fold::y.
  written_rows<C> whole_rows() const {
    return y.whole() ? written_rows<C>{y.row(0), y.step(), y.streams_rows(p)} : written_rows<C>{};
  }

  /// Stores what query_fold has left in a block. y may be q itself: q of these lanes was read before.
  void store_queries(index_t t0, index_t t1, const query_block<C>& block) const {
    if (p.average.set) average.write(p, t0, t1, block.average);
    if (p.lse.set) lse.write(p, t0, t1, block.lse);
    if (!y.whole()) y.write(p, t0, t1, block.y);
  }
};

/// What of a group of lane tiles need not be copied. Asked for while the group before was worked on, rows lie in the
/// second-level cache; of copies of six tiles, keys and values did not fit the first-level one, of one tile they do.
/// Depthwise conv takes 0.93 of its time by it (Zen 5, 2026-11, 256 x 14 x 14 x 384).
template <class C>
struct tiles_in_place {
  bool values = false, queries = false;
  bool columns = false;  ///< keys and values

  tiles_in_place() = default;
  /// y may be q itself, and is stored before it is proven.
  tiles_in_place(const problem& p, const lane_tile<C>* tiles, index_t count)
      : values(lane_group<C>(p.v, p.grid, tiles, count, 1).in_place()),
        queries(p.gate_fn != gate::none && p.q.data != p.y.data &&
                lane_group<C>(p.q, p.grid, tiles, count, 1).in_place()),
        columns(values && !hides_keys(p) && lane_group<C>(p.k, p.grid, tiles, count, p.d / p.hk).in_place()) {}
};

/// The fields of a lane tile that it reads.
template <class C>
struct query_inputs {
  const problem& p;
  lane_rows<C> k, v, q;

  query_inputs(const problem& from, const lane_tile<C>& tile)
      : p(from), k(p.k, p.grid, tile, p.d / p.hk), v(p.v, p.grid, tile, 1), q(p.q, p.grid, tile, 1) {}

  /// Where they can be used as they lie, see tiles_in_place.
  column_rows<C> columns() const { return column_rows<C>::in_place(k, v); }
  gate_inputs<C> gates() const { return {q.row(0), q.step()}; }

  /// Asks for rows of all that `count` tiles from this one on read, while another tile is worked on.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1, index_t count) const {
    if (count == 0) return;
    k.prefetch(t0, t1, count);
    v.prefetch(t0, t1, count);
    if (p.gate_fn != gate::none) q.prefetch(t0, t1, count);
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
