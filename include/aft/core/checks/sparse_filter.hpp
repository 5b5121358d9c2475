// SPDX-License-Identifier: Apache-2.0
/// @file checks/sparse_filter.hpp  Taps and values of a sparse filter against the call, and their form in the problem.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "options.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// What only a call with a filter's shape has: those without a stream, and on the host.
[[gnu::cold]] inline void require_sparse_call(const call& c) {
  if (!c.sparse) return;
  if (!c.opt->stream.empty()) fail(c.op, {"stream"}, "none with a sparse filter", "a stream");
}

[[gnu::cold]] inline void set_sparse(const call& c, const problem& p, bias_ref& ref) {
  const argument &taps = c.sparse->taps, &values = c.sparse->values;
  const index_t heads = values.view.extent(0), count = values.view.extent(1);
  if (heads == 0) fail(c.op, values, axis_text(0, "H") << " to divide d = " << p.d, "0");
  require_divides(c.op, values, 0, "H", p.d);
  require_extent(c.op, taps, 0, "H", heads);
  require_extent(c.op, taps, 1, "m", count);
  const auto axes = static_cast<index_t>(c.v.view.rank() - (c.v.view.rank() == 2 ? 1 : 2));
  if (taps.view.rank() == 3) require_extent(c.op, taps, 2, "axes", axes);
  if (c.opt->causal && axes != 1)
    fail(c.op, {"causal"}, "false on a grid of more than one axis", text("true with ") << axes << " axes");
  ref.heads = heads;
  ref.r = static_cast<std::byte*>(values.view.data());
  ref.r_type = values.view.type();
  ref.r_set = true;
  ref.r_sh = values.view.stride(0);
  ref.r_sj[2] = values.view.stride(1);
  ref.taps.data = static_cast<const std::byte*>(taps.view.data());
  ref.taps.wide = taps.view.type() == dtype::i64;
  ref.taps.count = count;
  ref.taps.axes = axes;
  ref.taps.sh = taps.view.stride(0);
  ref.taps.st = taps.view.stride(1);
  ref.taps.sa = taps.view.rank() == 3 ? taps.view.stride(2) : 0;
  ref.taps.first_query = c.opt->first_query;
}

inline text tap_text(const std::array<index_t, 3>& tap, index_t axes) {
  text written;
  for (index_t a = 3 - axes; a < 3; ++a) written << (a == 3 - axes ? "" : ", ") << tap[static_cast<std::size_t>(a)];
  return axes == 1 ? written : text("(") << written << ")";
}

/// Taps of head h from `first` on, as many as find room, as three numbers each.
inline index_t read_taps(const tap_list& all, index_t h, index_t first, std::span<std::array<index_t, 3>> to) {
  const index_t left = all.count - first, room = static_cast<index_t>(to.size()), n = left < room ? left : room;
  for (index_t i = 0; i < n; ++i) {
    std::array<index_t, 3>& tap = to[static_cast<std::size_t>(i)] = {};
    for (index_t a = 0; a < all.axes; ++a)
      tap[static_cast<std::size_t>(3 - all.axes + a)] = all.offset(h, first + i, a);
  }
  return n;
}

/// Taps that ascend, as most lists do, are known to differ at once. Of others a block is sorted, and the rest looked up
/// in it: the square of their number over the block's, but no memory, of which the checks have none to ask for.
[[gnu::cold]] inline void require_distinct_taps(const call& c, const tap_list& all, index_t h) {
  const auto refuse = [&](const std::array<index_t, 3>& twice) {
    fail(c.op, c.sparse->taps, "every offset once in a head", tap_text(twice, all.axes) << " twice in head " << h);
  };
  std::array<std::array<index_t, 3>, 512> room;
  std::array<index_t, 3> before{}, tap{};
  bool ascend = true;
  for (index_t i = 0; ascend && i < all.count; ++i) {
    read_taps(all, h, i, {&tap, 1});
    ascend = i == 0 || before < tap;
    before = tap;
  }
  if (ascend) return;
  for (index_t first = 0; first < all.count; first += static_cast<index_t>(room.size())) {
    const index_t n = read_taps(all, h, first, room);
    const auto end = room.begin() + n;
    std::sort(room.begin(), end);
    if (const auto twice = std::adjacent_find(room.begin(), end); twice != end) refuse(*twice);
    for (index_t i = first + n; i < all.count; ++i) {
      read_taps(all, h, i, {&tap, 1});
      if (std::binary_search(room.begin(), end, tap)) refuse(tap);
    }
  }
}

/// What taps say, read once their memory is known to be there: none twice in a head, and none ahead of a causal query.
/// Those of a device are settled by its kernels, as a host would have to wait for them.
[[gnu::cold]] inline void require_taps(const call& c, const problem& p) {
  if (!c.sparse || c.sparse->taps.view.on_device()) return;
  const tap_list& all = p.bias.taps;
  for (index_t h = 0; h < p.bias.heads; ++h) {
    for (index_t i = 0; i < all.count; ++i) {
      for (index_t a = 0; a < all.axes; ++a) {
        const index_t offset = all.offset(h, i, a);
        if (offset < -furthest_position || offset > furthest_position)
          fail(c.op, c.sparse->taps, "offsets within 2^61", offset);
        if (c.opt->causal && offset > 0) fail(c.op, c.sparse->taps, "offsets of at most 0 in a causal call", offset);
      }
    }
    require_distinct_taps(c, all, h);
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
