// SPDX-License-Identifier: Apache-2.0
/// @file checks/options.hpp  The tensors inside aft::options, whose types and shapes are known at run time only.
#pragma once

#include "validation.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

inline void require_space(const call& c, const argument& a) {
  if (a.view.on_device() == c.on_device) return;
  fail(c.op, a, c.on_device ? "a device view" : "a host view", a.view.on_device() ? "a device view" : "a host view");
}

inline void require_rank(const call& c, const argument& a, std::size_t rank) {
  if (a.view.rank() == rank) return;
  fail(c.op, a, text("rank ") << rank, static_cast<index_t>(a.view.rank()));
}

/// lse and average: (B, positions..., channels), or (positions, channels) for a call without a batch axis.
[[gnu::cold]] inline void require_row_tensor(const call& c, const argument& a, const problem& p,
                                             const char* channel_name, index_t channels) {
  if (!a.given()) return;
  require_space(c, a);
  if (!c.backward && !a.view.writable())
    fail(c.op, a, "a mutable view, since a forward call writes it", "a view of const");
  std::size_t rank = c.backward ? c.dy.view.rank() : c.y.view.rank();
  if (rank == 2 && !(c.no_batch && a.view.rank() == 2)) rank = 3;
  // Packed sequences have no batch axis, but where their views have one for it to be 1.
  if (p.packed != nullptr && a.view.rank() == 2) rank = 2;
  require_rank(c, a, rank);
  const std::size_t first = rank == 2 ? 0 : 1;
  if (first == 1) require_extent(c.op, a, 0, "B", p.B);
  const std::size_t axes = rank - 1 - first;
  static constexpr const char* names[] = {"D", "H", "W"};
  for (std::size_t i = 0; i < axes; ++i) {
    require_extent(c.op, a, first + i, axes == 1 ? "Tq" : names[3 - axes + i], axes == 1 ? p.Tq : p.grid[3 - axes + i]);
  }
  require_extent(c.op, a, rank - 1, channel_name, channels);
}

[[gnu::cold]] inline void require_mask(const call& c, const problem& p) {
  const argument& a = c.mask;
  if (!a.given()) return;
  require_space(c, a);
  if (a.view.type() != dtype::u8 && a.view.type() != dtype::i8)
    fail(c.op, a, "uint8, int8 or bool", name_of(a.view.type()));
  const std::size_t rank = a.view.rank();
  if (rank < 1 || rank > 3) {
    fail(c.op, a, "rank 1 (Tk), 2 (Tq, Tk) or 3 (B, Tq, Tk)", static_cast<index_t>(rank));
  }
  const auto broadcast_or = [&](std::size_t axis, const char* name, index_t extent) {
    if (a.view.extent(axis) == 1 || a.view.extent(axis) == extent) return;
    fail(c.op, a, axis_text(axis, name) << " to be 1 or " << extent, a.view.extent(axis));
  };
  if (rank == 3) broadcast_or(0, "B", p.B);
  if (rank >= 2) broadcast_or(rank - 2, "Tq", p.Tq);
  require_extent(c.op, a, rank - 1, "Tk", p.Tk);
}

[[gnu::cold]] inline void require_lengths(const call& c, const argument& a, const problem& p) {
  if (!a.given()) return;
  require_space(c, a);
  if (a.view.type() != dtype::i64 && a.view.type() != dtype::i32)
    fail(c.op, a, "int64 or int32", name_of(a.view.type()));
  require_rank(c, a, 1);
  if (p.packed != nullptr) return require_extent(c.op, a, 0, "N", p.packed->count);
  require_extent(c.op, a, 0, "B", p.B);
}

/// For calls that go on from nothing.
[[gnu::cold]] inline void refuse_stream(const call& c) {
  if (!c.opt->stream.empty()) fail(c.op, {"stream"}, "none, as this call has no use for it", "a stream");
  if (!c.opt->slot_ids.empty())
    fail(c.op, {"slot_ids"}, "an empty view, as this call has no use for it",
         text("shape ") << shape_text(c.opt->slot_ids));
}

/// Half the range of what a window may reach, so that their sum is one.
inline constexpr index_t furthest_position = index_t{1} << 61;

[[gnu::cold]] inline void require_first_query(const call& c, std::size_t axes) {
  const index_t first = c.opt->first_query;
  if (first < 0 || first > furthest_position) fail(c.op, {"first_query"}, "0 to 2^61", first);
  if (axes != 1 && first != 0) {
    fail(c.op, {"first_query"}, "0 on a grid of more than one axis",
         text(first) << " with " << static_cast<index_t>(axes) << " axes");
  }
}

[[gnu::cold]] inline void require_options(const call& c, const problem& p) {
  const bool in_double = c.type == dtype::f64;
  require_mask(c, p);
  require_lengths(c, c.key_lengths, p);
  require_lengths(c, c.query_lengths, p);
  if (c.sequences) require_lengths(c, c.sequences->slot_ids, p);
  if (c.lse.given() && c.lse.view.type() != (in_double ? dtype::f64 : dtype::f32)) {
    fail(c.op, c.lse, in_double ? "double for double data" : "float", name_of(c.lse.view.type()));
  }
  require_row_tensor(c, c.lse, p, "hk", p.hk);
  // Heads finer than the key channels give one key channel several sums, and lse has room for one.
  if (c.lse.given() && p.bias.heads > 1 && p.hk % p.bias.heads != 0) {
    fail(c.op, c.lse,
         text("hk to be a multiple of the bias's H = ") << p.bias.heads << ", so that a key channel has one lse",
         text("hk = ") << p.hk);
  }
  const dtype average = c.average.view.type();
  if (c.average.given() && average != c.type && (in_double || average != dtype::f32)) {
    fail(c.op, c.average, text(name_of(c.type)) << (in_double || c.type == dtype::f32 ? "" : " or float"),
         name_of(average));
  }
  require_row_tensor(c, c.average, p, "d", p.d);
  // One alone would have to be computed with the other: whoever passes it believes that it is used.
  if (c.backward && c.lse.given() != c.average.given()) {
    fail(c.op, c.lse.given() ? c.average : c.lse, "both lse and average as the forward call wrote them, or neither",
         c.lse.given() ? "lse alone" : "average alone");
  }
}

inline length_list to_lengths(const any_view& v) {
  if (v.empty() || v.extent(0) == 0) return {};
  const index_t step = v.extent(0) > 1 ? v.stride(0) * size_of(v.type()) : 0;
  return {static_cast<const std::byte*>(v.data()), step, v.type() == dtype::i64};
}

/// An axis of extent 1, or none, is the same for the whole batch, or for all queries: stride 0 says so to the backend.
inline void set_mask(const call& c, problem& p) {
  p.lengths = to_lengths(c.key_lengths.view);
  p.query_lengths = to_lengths(c.query_lengths.view);
  if (!c.mask.given()) return;
  const any_view& m = c.mask.view;
  const std::size_t keys = m.rank() - 1;
  const auto step = [&](std::size_t axis) { return m.extent(axis) > 1 ? m.stride(axis) : 0; };
  // Without queries a mask of pairs has no element, and gradients of keys are asked for all the same.
  if (keys >= 1 && m.extent(keys - 1) == 0) return;
  p.mask = static_cast<const std::byte*>(m.data());
  p.mask_sb = keys == 2 ? step(0) : 0;
  p.mask_st = keys >= 1 ? step(keys - 1) : 0;
  p.mask_ss = step(keys);
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
