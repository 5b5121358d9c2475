// SPDX-License-Identifier: Apache-2.0
/// @file cut/pieces.hpp  Rows taken with a rank's own keys where they lie, and the few at its edges with copies.
#pragma once

#include "cut.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// All rows of a rank, or those at one of its edges.
enum class piece : std::uint8_t { all, first, last };

/// Where a rank has the same positions of queries and keys, and other ranks' keys are in reach of the rows at its edges
/// alone, all rows are taken with own keys in place, as if those others were far. Then the rows at the edges come
/// again, with copies of the keys around them, and with all other own keys far.
struct row_pieces {
  static constexpr index_t most = 3;  ///< all rows, the first ones, the last ones
  bool any = false;
  index_t first = 0, last = 0;   ///< rows at the beginning, and at the end
  positions before{}, behind{};  ///< the keys that come one by one to those, others' and own

  bool has_edges() const { return first + last > 0; }

  /// Of rank `rank`. All rows at an edge reach for keys of others, so that none is left if a part is that short.
  static row_pieces of(const cut& where, int rank) {
    const positions &q = where.queries(rank), &k = where.keys(rank), &around = where.near_keys(rank);
    const bias_reach& reach = where.reach();
    row_pieces x;
    const bool window = reach.kind == reach_kind::window, alone = reach.kind == reach_kind::none && where.causal();
    if (!(window || alone) || reach.hidden_too || q.count() == 0 || q.first != k.first || q.last != k.last) return x;
    if (around.first > k.first || around.last < k.last) return x;
    const index_t left = max_of(reach.before, index_t{0}), right = where.causal() ? 0 : max_of(reach.after, index_t{0});
    const index_t first = around.first < k.first ? left : 0, last = around.last > k.last ? right : 0;
    if (first + last >= q.count()) return x;
    x.any = true;
    x.first = first;
    x.last = last;
    if (first > 0) x.before = {around.first, min_of(k.last, q.first + first + right)};
    if (last > 0) x.behind = {max_of(k.first, q.last - last - left), around.last};
    return x;
  }
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
