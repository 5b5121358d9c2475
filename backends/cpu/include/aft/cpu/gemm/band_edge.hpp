// SPDX-License-Identifier: Apache-2.0
/// @file gemm/band_edge.hpp  The staircase that a window or causality makes of a panel's dense columns.
#pragma once

#include "geometry.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Which ends of a tile are staircases: stair by stair, rows begin with the steps, one a row, that they are the first
/// to need, or end with the last ones. What lies beside is 0 or left to the caller.
struct tile_ends {
  bool begin = false, end = false;
};

/// The dense columns of each stair of a panel of `rows` rows.
template <class C>
struct panel_stairs {
  pair_geometry::span span;  ///< of the panel
  tile_ends ends;
  index_t rows;

  static index_t stair_of(index_t row) {
    index_t stair = 0;
    while (tuning<C>::stair(stair + 1) <= row) ++stair;
    return stair;
  }
  index_t lo(index_t stair) const { return ends.begin ? span.lo + tuning<C>::stair(stair) : span.lo; }
  index_t hi(index_t stair) const {
    const index_t end = tuning<C>::stair(stair + 1);
    return ends.end && end < rows ? span.hi - (rows - end) : span.hi;
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
