// SPDX-License-Identifier: Apache-2.0
/// @file window/lines.hpp  Where the arrays of a few lane tiles lie side by side, row by row.
#pragma once

#include "../tensor/stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The lane tiles that are worked on together. `room` has as many: they would be a tenth of a small stack.
template <class C>
struct window_tiles {
  index_t count = 0;
  const lane_tile<C>* at;

  template <class Tiles>
  window_tiles(index_t n, lane_tile<C>* room, const Tiles& tile_at) : count(n), at(room) {
    for (index_t i = 0; i < n; ++i) room[i] = tile_at(i);
  }
};

/// Up to four arrays whose rows can be used in place for all lane tiles: row r of tile i of array f is at(f, i, r).
template <class C>
class window_lines {
 public:
  explicit window_lines(index_t rows) : end_(rows) {}

  /// Whether `f` is such an array; only then it is added.
  [[gnu::noinline]] bool add(const field& f, const std::array<index_t, 3>& grid, const window_tiles<C>& tiles,
                             index_t group) {
    if (tiles.count == 0) return false;
    const lane_group<C> rows(f, grid, tiles.at, tiles.count, group);
    if (!rows.in_place()) return false;
    first_[count_] = rows.first();
    step_[count_++] = rows.step();
    return true;
  }
  void clear() { count_ = 0; }

  index_t count() const { return count_; }
  C* at(index_t f, index_t i, index_t r) const { return first_[f] + r * step_[f] + i * lanes<C>; }
  index_t step(index_t f) const { return step_[f]; }
  index_t end() const { return end_; }

  /// Asks for rows of tile i, as far as they exist: a lane tile is a cache line a row, which the hardware does not
  /// foresee.
  AFT_COMPILE_ONCE void prefetch_into(index_t i, index_t r0, index_t r1, bool to_write = false) const {
    r0 = max_of(r0, 0);
    r1 = min_of(r1, end_);
    for (index_t f = 0; f < count_ && r0 < r1; ++f) {
      const C* row = at(f, i, r0);
      if (to_write) {
        for (index_t r = r0; r < r1; ++r, row += step_[f]) AFT_PREFETCH(row, 1);
      } else {
        for (index_t r = r0; r < r1; ++r, row += step_[f]) AFT_PREFETCH(row, 0, 2);
      }
    }
  }

 private:
  C* first_[4] = {};
  index_t step_[4] = {};
  index_t count_ = 0, end_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
