// SPDX-License-Identifier: Apache-2.0
/// @file sparse/taps.hpp  The taps of a sparse filter as the loops over rows take them: which key each one reads, and
/// what that key weighs more than one outside the filter.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include <aft/core/problem/problem.hpp>
#include <aft/core/views/element_access.hpp>

#include "../math/exp.hpp"
#include "../runtime/workspace.hpp"
#include "../tensor/strided.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// One tap of one head.
struct sparse_tap {
  std::array<index_t, 3> offset{};  ///< s - t on each axis of the grid
  index_t distance = 0;             ///< the same in keys; a query of a sequence stands at first_query + t
  double value = 0;                 ///< w
  double gain = 0;                  ///< exp(w) - 1
};

/// A key that a tap of a row reads.
struct tapped_key {
  index_t key = 0;
  double value = 0;
};

/// Values beyond it go by the definition: exp(value) leaves no room for sums beside it.
template <class C>
inline constexpr double largest_tap_value = sizeof(C) == 4 ? 40.0 : 500.0;

/// All of a call's taps, [head][tap].
class sparse_taps {
 public:
  sparse_taps(const problem& p, sparse_tap* memory) : p_(&p), taps_(memory) {}

  static index_t size(const problem& p) { return p.bias.heads * p.bias.taps.count; }

  void fill() const {
    const tap_list& all = p_->bias.taps;
    for (index_t h = 0; h < p_->bias.heads; ++h)
      for (index_t i = 0; i < all.count; ++i) {
        sparse_tap& tap = taps_[h * all.count + i];
        tap = {};
        for (index_t a = 0; a < all.axes; ++a)
          tap.offset[static_cast<std::size_t>(3 - all.axes + a)] = all.offset(h, i, a);
        // What leads beyond the grid everywhere is not multiplied: it might overflow.
        if (on_sequence()) {
          tap.distance = tap.offset[2] + all.first_query;
        } else if (reaches(tap)) {
          tap.distance = (tap.offset[0] * p_->grid[1] + tap.offset[1]) * p_->grid[2] + tap.offset[2];
        }
        tap.value = load_element(p_->bias.r, p_->bias.r_type, h * p_->bias.r_sh + i * p_->bias.r_sj[2]);
        tap.gain = std::expm1(tap.value);
      }
  }

  /// Extents that a row_place is checked against, and what a sequence adds to its offsets.
  index_t extent(std::size_t axis) const { return on_sequence() ? (axis == 2 ? p_->Tk : 1) : p_->grid[axis]; }
  /// The grid that queries stand on.
  std::array<index_t, 3> queries() const { return on_sequence() ? std::array<index_t, 3>{1, 1, p_->Tq} : p_->grid; }
  index_t sequence_first() const { return on_sequence() ? p_->bias.taps.first_query : 0; }
  /// Whether some tap hides its key from the rows that it leads from.
  bool hide() const {
    for (index_t i = 0; i < size(*p_); ++i)
      if (taps_[i].value == -std::numeric_limits<double>::infinity()) return true;
    return false;
  }

  index_t count() const { return p_->bias.taps.count; }
  const sparse_tap* of(index_t head) const { return taps_ + head * count(); }

  /// Query t on the grid; found once for all of its taps, by divisions.
  struct row_place {
    index_t t;
    std::array<index_t, 3> x;
  };
  row_place place(index_t t) const {
    if (on_sequence()) return {t, {0, 0, t}};
    return {t, {t / p_->grid[2] / p_->grid[1], t / p_->grid[2] % p_->grid[1], t % p_->grid[2]}};
  }

  /// The key that a query reads through the tap, or -1.
  index_t key(const sparse_tap& tap, const row_place& query) const {
    const index_t s = query.t + tap.distance;
    if (on_sequence()) return s < 0 || s >= p_->Tk || tap.offset[0] != 0 || tap.offset[1] != 0 ? -1 : s;
    for (std::size_t a = 0; a < 3; ++a) {
      // As unsigned numbers: what is below 0 lies beyond the end too.
      if (static_cast<std::uint64_t>(query.x[a] + tap.offset[a]) >= static_cast<std::uint64_t>(p_->grid[a])) return -1;
    }
    return s;
  }

 private:
  bool on_sequence() const { return p_->grid[0] == 1 && p_->grid[1] == 1; }
  bool reaches(const sparse_tap& tap) const {
    for (std::size_t a = 0; a < 3; ++a)
      if (tap.offset[a] <= -p_->grid[a] || tap.offset[a] >= p_->grid[a]) return false;
    return true;
  }

  const problem* p_;
  sparse_tap* taps_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
