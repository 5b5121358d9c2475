// SPDX-License-Identifier: Apache-2.0
/// @file gemm/band_edge.hpp  The band edge that a window or causality makes of a panel's dense columns.
#pragma once

#include "geometry.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Which ends of a tile are band edges: band edge by band edge, rows begin with the steps, one a row, that they are the
/// first to need, or end with the last ones. What lies beside is 0 or left to the caller.
struct tile_edges {
  bool begin = false, end = false;
};

/// The dense columns of each band edge of a panel of `rows` rows.
template <class C>
struct band_edge {
  pair_geometry::span span;  ///< of the panel
  tile_edges edges;
  index_t rows;

  static index_t edge_of(index_t row) {
    index_t edge_group = 0;
    while (tuning<C>::edge_group(edge_group + 1) <= row) ++edge_group;
    return edge_group;
  }
  index_t lo(index_t edge_group) const { return edges.begin ? span.lo + tuning<C>::edge_group(edge_group) : span.lo; }
  index_t hi(index_t edge_group) const {
    const index_t end = tuning<C>::edge_group(edge_group + 1);
    return edges.end && end < rows ? span.hi - (rows - end) : span.hi;
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
