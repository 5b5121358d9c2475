// SPDX-License-Identifier: Apache-2.0
/// @file validation_options.hpp  The tensors inside aft::options, whose types and shapes are known at run time only.
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
  if (a.view.type() != dtype::u8) fail(c.op, a, "uint8 (or bool)", name_of(a.view.type()));
  if (!(c.no_batch && a.view.rank() == 2)) require_rank(c, a, 3);
  const std::size_t first = a.view.rank() - 2;
  const auto broadcast_or = [&](std::size_t axis, const char* name, index_t extent) {
    if (a.view.extent(axis) == 1 || a.view.extent(axis) == extent) return;
    fail(c.op, a, axis_text(axis, name) << " to be 1 or " << extent, a.view.extent(axis));
  };
  if (first == 1) broadcast_or(0, "B", p.B);
  broadcast_or(first, "Tq", p.Tq);
  require_extent(c.op, a, first + 1, "Tk", p.Tk);
}

[[gnu::cold]] inline void require_key_lengths(const call& c, const problem& p) {
  const argument& a = c.key_lengths;
  if (!a.given()) return;
  require_space(c, a);
  if (a.view.type() != dtype::i64) fail(c.op, a, "int64", name_of(a.view.type()));
  require_rank(c, a, 1);
  require_extent(c.op, a, 0, "B", p.B);
}

[[gnu::cold]] inline void require_options(const call& c, const problem& p) {
  const bool in_double = c.type == dtype::f64;
  require_mask(c, p);
  require_key_lengths(c, p);
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
}

/// An axis of extent 1 is the same for the whole batch, or for all queries: stride 0 says so to the backend.
inline void set_mask(const call& c, problem& p) {
  if (c.key_lengths.given()) {
    p.lengths = static_cast<const std::byte*>(c.key_lengths.view.data());
    p.lengths_sb = c.key_lengths.view.stride(0);
  }
  if (!c.mask.given()) return;
  const any_view& m = c.mask.view;
  const std::size_t first = m.rank() - 2;
  // Without queries a mask of pairs has no element, and gradients of keys are asked for all the same.
  if (m.extent(first) == 0) return;
  p.mask = static_cast<const std::byte*>(m.data());
  p.mask_sb = first == 1 && m.extent(0) > 1 ? m.stride(0) : 0;
  p.mask_st = m.extent(first) > 1 ? m.stride(first) : 0;
  p.mask_ss = m.stride(first + 1);
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
