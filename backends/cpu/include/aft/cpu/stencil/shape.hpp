// SPDX-License-Identifier: Apache-2.0
/// @file stencil/shape.hpp  Where the filter's box lies on the grid, and how channels are laid on lanes.
#pragma once

#include "../tensor/stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The box of taps around a position: output x reads inputs x + j - left, j < taps, per axis. Forward, outputs are
/// queries and inputs keys; transposed, the reverse.
struct stencil_shape {
  std::array<index_t, 3> grid{1, 1, 1};
  std::array<index_t, 3> taps{1, 1, 1};
  std::array<index_t, 3> left{0, 0, 0};
  std::array<index_t, 3> skipped{0, 0, 0};  ///< taps of the caller's filter that lie before the first one kept
  bool before = false;                      ///< inputs before the box count, with the outside weight
  bool after = false;

  struct span {
    index_t lo = 0, hi = 0;
  };

  index_t width() const { return grid[2]; }
  index_t rows() const { return grid[0] * grid[1]; }
  index_t positions() const { return rows() * width(); }
  index_t tap_count() const { return taps[0] * taps[1] * taps[2]; }
  bool complement() const { return before || after; }

  /// Inputs under the box of coordinate x on an axis, lo <= hi within the grid.
  span reach(std::size_t axis, index_t x) const {
    const index_t n = grid[axis];
    index_t lo = x - left[axis];
    index_t hi = lo + taps[axis];
    lo = lo < 0 ? 0 : min_of(lo, n);
    hi = hi < lo ? lo : min_of(hi, n);
    return {lo, hi};
  }

  /// The box as an input sees the outputs that read it.
  stencil_shape transposed() const {
    stencil_shape other = *this;
    for (std::size_t i = 0; i < 3; ++i) other.left[i] = taps[i] - 1 - left[i];
    other.before = after;
    other.after = before;
    return other;
  }
};

/// Taps that reach no key from anywhere on the grid are cut off: they must neither cost anything nor scale the rest.
inline stencil_shape shape_of(const problem& p) {
  stencil_shape shape;
  shape.grid = p.grid;
  for (std::size_t i = 0; i < 3; ++i) {
    const index_t n = p.grid[i];
    index_t first = p.left[i] - n + 1;
    first = max_of(first, 0);
    index_t last = p.left[i] + n < p.taps[i] ? p.left[i] + n : p.taps[i];
    last = max_of(last, first);
    shape.taps[i] = last - first;
    shape.left[i] = p.left[i] - first;
    shape.skipped[i] = first;
  }
  // An axis without taps empties the box, whatever the others have: a grid of one row looks at its last axis alone.
  // Of a causal sequence the empty box keeps its place, after the output: the keys up to there count.
  if (shape.tap_count() == 0 && !p.causal) shape.taps = shape.left = shape.skipped = {0, 0, 0};
  shape.before = !p.excluded;
  shape.after = !p.excluded && !p.causal;
  return shape;
}

/// Lanes hold channels of one batch element; where d is too small to fill them, channels of several whole elements.
/// So a lane means the same channel in every item with the same tile, and they share its table of weights.
template <class C>
struct lane_plan {
  index_t B = 0, d = 0;
  index_t together = 1;  ///< batch elements in one vector
  index_t tiles = 0;     ///< vectors of one group of batch elements
  index_t groups = 0;

  lane_plan(index_t batch, index_t channels) : B(batch), d(channels) {
    if (d > 0 && d < lanes<C>) together = lanes<C> / d < B ? lanes<C> / d : B;
    if (together < 1) together = 1;
    tiles = ceil_div(d, lanes<C>);
    groups = ceil_div(B, together);
  }
  lane_tile<C> tile(index_t group, index_t index) const {
    const index_t b = group * together;
    const index_t batches = b + together < B ? together : B - b;
    return make_lane_tile<C>(b, 0, d, index * lanes<C>, batches * d);
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
