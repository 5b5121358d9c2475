// SPDX-License-Identifier: Apache-2.0
/// @file tensor/stage.hpp  Strided storage of any type to and from small contiguous buffers of the arithmetic type.
///
/// Kernels read and write through here, so they are written once for contiguous vectors of C, and storage types,
/// strides and grids cost a copy in the first-level cache instead of a template parameter. But for loops that do little
/// more than read and write, those of `simple` and the end of a panel's rows: they take plain rows of a type as they
/// lie.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <aft/core/problem/problem.hpp>

#include "../runtime/streaming.hpp"
#include "strided.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Whether one stride walks each of the fields through the grid row by row, so that they can be taken for sequences:
/// that spares a division with remainder for every position that is read.
inline bool is_flat(const problem& p, std::initializer_list<const field*> fields) {
  for (const field* f : fields) {
    if (!f->set) continue;
    if (p.grid[1] > 1 && f->sx[1] != f->sx[2] * p.grid[2]) return false;
    if (p.grid[0] > 1 && f->sx[0] != f->sx[2] * p.grid[2] * p.grid[1]) return false;
  }
  return true;
}

/// The (b, c) pairs that the lanes of one vector work on. Lanes never exchange anything, so a lane's result does not
/// depend on its neighbours.
template <class C>
struct lane_tile {
  index_t count = 0;       ///< lanes in use
  bool one_batch = false;  ///< all of one batch element, with consecutive channels
  index_t b[lanes<C>] = {};
  index_t c[lanes<C>] = {};

  /// Lanes that hold no channel.
  vec_mask<C> idle() const {
    C used[lanes<C>];
    for (index_t l = 0; l < lanes<C>; ++l) used[l] = l < count ? C(1) : C(0);
    return load(used) == vec<C>(C(0));
  }
};

/// A field seen through a lane tile: where each lane's element of a position lies. Inlined as a whole into everything
/// that asks for one, this and make_lane_tile were a sixth of what a call compiles to.
template <class C>
struct lane_field {
  const field* f = nullptr;
  const std::array<index_t, 3>* grid = nullptr;
  index_t count = 0;
  bool consecutive = false;  ///< lane l lies at base + l
  index_t base = 0;
  index_t at[lanes<C>];
  bool writes[lanes<C>];  ///< the first lane of each shared channel, so that no two threads write one element

  /// `group` value channels share one channel of this field (k and lse have fewer channels than v).
  lane_field(const field& from, const std::array<index_t, 3>& g, const lane_tile<C>& tile, index_t group)
      : f(&from), grid(&g), count(tile.count) {
    if (count == 0) return;
    base = tile.b[0] * from.sb + (tile.c[0] / group) * from.sc;
    consecutive = tile.one_batch && group == 1 && from.sc == 1;
    // Built once a panel: the lanes' own places are worked out only where they are used.
    if (!consecutive || count != lanes<C>) find_lanes(tile, group);
  }

  /// The common case, worth its own loop: a vector a row, rows a fixed step apart.
  bool whole_rows() const { return consecutive && count == lanes<C> && (*grid)[0] == 1 && (*grid)[1] == 1; }

  /// Asks for rows that a later read will want, or a later write. A lane tile is one cache line a row, which the
  /// hardware does not foresee, or a part of one, for which the tile before it asks (full on 32 x 197 x 384 in bfloat16
  /// 0.99, Zen 5). Inlined by force: GCC 12 drops calls of functions that only prefetch.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1, index_t T, bool to_write = false) const {
    ask_for(t0, t1 < T ? t1 : T, 0, to_write);
  }

  /// The same for rows [t0, t1) of the lane tiles beside this one, for whoever goes on with those: two lines ahead of
  /// the rows' own (full_backward on 32 x 197 x 384 in bfloat16, one thread: 0.94 of its time; Zen 4, 2026-11).
  [[gnu::always_inline]] void prefetch_beside(index_t t0, index_t t1) const { ask_for(t0, t1, 2, false); }

  /// out[(t - t0) * lanes + l] for t0 <= t < t1. Unused lanes are filled with `fill`.
  AFT_COMPILE_ONCE void read(index_t t0, index_t t1, C* out, C fill = C(0)) const {
    if (f->type != dtype_of<C> || !whole_rows()) return read_any(t0, t1, out, fill);
    const C* row = reinterpret_cast<const C*>(f->data) + base + t0 * f->sx[2];
    for (index_t t = t0; t < t1; ++t, out += lanes<C>, row += f->sx[2]) store(out, load(row));
  }

  /// Whether a call's arrays are too many to be written through the caches, lane tile by lane tile: a row of one has to
  /// be a whole line. Halves of lines, as they are with AVX2, are each joined with what memory holds: there strict(32)
  /// on 8 x 1024 x 512 took 1.07 times as long, its backward call 1.8 times (Emerald Rapids, 2026-11).
  template <class Problem>
  bool streams_tiles(const Problem& p) const {
    return sizeof(vec<C>) == 64 && streams_rows(p);
  }
  /// The same where the tiles of a row are written one after the other.
  template <class Problem>
  bool streams_rows(const Problem& p) const {
    constexpr std::uintptr_t line = sizeof(vec<C>);
    if (f->type != dtype_of<C> || !whole_rows() ||
        arrays(p) * p.query_rows() * p.d * size_of(f->type) < streaming_from::call_bytes)
      return false;
    const auto first = reinterpret_cast<std::uintptr_t>(reinterpret_cast<const C*>(f->data) + base);
    return first % line == 0 && static_cast<std::uintptr_t>(f->sx[2]) * sizeof(C) % line == 0;
  }

  /// The inverse of read. Of the lanes that share a channel the first value channel's writes. `around` only where
  /// streams_tiles says so.
  AFT_COMPILE_ONCE void write(index_t t0, index_t t1, const C* in, bool streamed = false) const {
    if (f->type != dtype_of<C> || !whole_rows()) return write_any(t0, t1, in);
    C* row = reinterpret_cast<C*>(f->data) + base + t0 * f->sx[2];
    for (index_t t = t0; t < t1; ++t, in += lanes<C>, row += f->sx[2]) put(row, load(in), streamed);
  }

 private:
  [[gnu::always_inline]] void ask_for(index_t t0, index_t t1, index_t lines_ahead, bool to_write) const {
    if (!whole_rows()) return;
    constexpr index_t line = 64;
    const index_t size = size_of(f->type), step = f->sx[2] * size;
    const std::byte* row = f->data + (base + t0 * f->sx[2]) * size;
    if (step % line == 0 && static_cast<index_t>(reinterpret_cast<std::uintptr_t>(row) % line) >= lanes<C> * size)
      return;
    row += lines_ahead * line;
    if (to_write) {
      for (index_t t = t0; t < t1; ++t, row += step) AFT_PREFETCH(row, 1);
    } else {
      for (index_t t = t0; t < t1; ++t, row += step) AFT_PREFETCH(row);
    }
  }

  /// Arrays of B x T x d that a call reads or writes: q, k, v, y; and with average, lse, dy, dq, dk, dv instead of y.
  static constexpr index_t arrays(const problem&) { return 4; }
  static constexpr index_t arrays(const backward_problem&) { return 9; }

  // Other types and layouts.
  AFT_COMPILE_ONCE void find_lanes(const lane_tile<C>& tile, index_t group) {
    for (index_t l = 0; l < count; ++l) {
      const index_t c = group == 1 ? tile.c[l] : tile.c[l] / group;
      at[l] = tile.b[l] * f->sb + c * f->sc;
      writes[l] = c * group == tile.c[l];
    }
  }

  AFT_COMPILE_ONCE void read_any(index_t t0, index_t t1, C* out, C fill) const {
    visit_storage<C>(
        f->type, [&](auto* tag) __attribute__((always_inline)) {
          using T = std::remove_pointer_t<decltype(tag)>;
          const T* from = reinterpret_cast<const T*>(f->data);
          if (whole_rows()) {
            // Copies: a vector that is stored might alias what is captured, which took 9 cycles a row.
            const index_t step = f->sx[2], rows = t1 - t0;
            const T* row = from + base + t0 * step;
            C* to = out;
            for (index_t i = 0; i < rows; ++i, to += lanes<C>, row += step) store(to, load_as<C>(row));
            return;
          }
          for (index_t t = t0; t < t1; ++t, out += lanes<C>) {
            const T* const row = from + position_offset(*f, *grid, t);
            if (consecutive && count == lanes<C>) {
              store(out, load_as<C>(row + base));
            } else {
              for (index_t l = 0; l < count; ++l) out[l] = to_compute<C>(row[at[l]]);
              for (index_t l = count; l < lanes<C>; ++l) out[l] = fill;
            }
          }
        });
  }

  AFT_COMPILE_ONCE void write_any(index_t t0, index_t t1, const C* in) const {
    visit_storage<C>(
        f->type, [&](auto* tag) __attribute__((always_inline)) {
          using T = std::remove_pointer_t<decltype(tag)>;
          T* const to = reinterpret_cast<T*>(f->data);
          if (whole_rows()) {
            const index_t step = f->sx[2], rows = t1 - t0;
            T* row = to + base + t0 * step;
            const C* from = in;
            for (index_t i = 0; i < rows; ++i, from += lanes<C>, row += step) store_as<C>(row, load(from));
            return;
          }
          for (index_t t = t0; t < t1; ++t, in += lanes<C>) {
            T* const row = to + position_offset(*f, *grid, t);
            if (consecutive && count == lanes<C>) {
              store_as<C>(row + base, load(in));
            } else {
              for (index_t l = 0; l < count; ++l)
                if (writes[l]) row[at[l]] = to_storage<T>(in[l]);
            }
          }
        });
  }
};

/// Rows [r0, r1) of a panel of keys, by streaming stores where streams_tiles says so; else the next panel's are asked
/// for.
template <class C>
AFT_COMPILE_ONCE inline void write_panel(const backward_problem& p, const field& to, const std::array<index_t, 3>& grid,
                                         const lane_tile<C>& tile, index_t r0, index_t r1, index_t next,
                                         const C* from) {
  const lane_field<C> out(to, grid, tile, 1);
  const bool streamed = out.streams_tiles(p);
  out.write(r0, r1, from, streamed);
  if (!streamed) out.prefetch(r1, r1 + next, p.Tk, true);
}

/// The tile of lanes [n0, n0 + count) of the flattened (batch, channel) columns of one head: column n is batch
/// b0 + n / dh, channel c0 + n % dh.
template <class C>
AFT_COMPILE_ONCE inline lane_tile<C> make_lane_tile(index_t b0, index_t c0, index_t dh, index_t n0, index_t n_end) {
  lane_tile<C> tile;
  tile.count = n_end - n0 < lanes<C> ? n_end - n0 : lanes<C>;
  if (tile.count <= 0) return tile;
  // One division: this runs for every panel.
  index_t b = n0 / dh;
  index_t c = n0 - b * dh;
  if (tile.count == lanes<C> && c + lanes<C> <= dh) {
    // Of whole vectors: the loop below was 2% of full on 32 x 197 x 384 in bfloat16 (Zen 5, 2026-11).
    for (index_t l = 0; l < lanes<C>; ++l) {
      tile.b[l] = b0 + b;
      tile.c[l] = c0 + c + l;
    }
    tile.one_batch = true;
    return tile;
  }
  for (index_t l = 0; l < tile.count; ++l) {
    tile.b[l] = b0 + b;
    tile.c[l] = c0 + c;
    if (++c == dh) {
      c = 0;
      ++b;
    }
  }
  tile.one_batch = tile.count > 0 && tile.b[0] == tile.b[tile.count - 1];
  return tile;
}

/// Rows of neighbouring lane tiles as they can be loaded: tile i of row r lies at data + r * step + i * apart.
template <class C>
struct staged_rows {
  const C* data = nullptr;
  index_t step = 0;
  index_t apart = 0;

  const C* at(index_t r, index_t i) const { return data + r * step + i * apart; }
};

/// Rows that results are stored to, in the caller's array or in a buffer; null: not wanted.
template <class C>
struct written_rows {
  C* to = nullptr;
  index_t step = lanes<C>;
  bool streamed = false;  ///< by streaming stores

  C* row(index_t i) const { return to + i * step; }
};

/// Whether the rows of lane tiles are whole vectors, each tile's right after the one before. Every tile is looked at:
/// where a batch element ends one in the middle may have idle lanes, and what follows it still lie where a whole one
/// would end.
template <class C>
AFT_COMPILE_ONCE inline bool lie_side_by_side(const field& from, const std::array<index_t, 3>& grid,
                                              const lane_tile<C>* tiles, index_t count, index_t group) {
  index_t expected = 0;
  for (index_t i = 0; i < count; ++i, expected += lanes<C>) {
    const lane_field<C> rows(from, grid, tiles[i], group);
    if (i == 0) expected = rows.base;
    if (!rows.whole_rows() || rows.base != expected) return false;
  }
  return true;
}

/// A field seen through `count` lane tiles. Where they lie side by side in memory, as they do in all but odd layouts,
/// rows are handed out in place: a row is then read for all tiles at once, which takes whole runs of cache lines
/// where a lane tile alone takes one line a row, which the hardware does not foresee.
template <class C>
class lane_group {
 public:
  AFT_COMPILE_ONCE lane_group(const field& from, const std::array<index_t, 3>& grid, const lane_tile<C>* tiles,
                              index_t count, index_t group)
      : from_(&from), grid_(&grid), tiles_(tiles), count_(count), group_(group) {
    // Of no positions there may be no memory.
    in_place_ =
        from.data != nullptr && from.type == dtype_of<C> && lie_side_by_side<C>(from, grid, tiles, count, group);
    base_ = lane_field<C>(from, grid, tiles[0], group).base;
  }

  bool in_place() const { return in_place_; }
  /// Where the rows lie if they can be used in place: tile i of row t at first() + t * step() + i lanes.
  C* first() const { return reinterpret_cast<C*>(from_->data) + base_; }
  index_t step() const { return from_->sx[2]; }

  /// Brings rows [t0, t1) to the second-level cache. Inlined by force, see lane_field::prefetch.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1) const {
    if (!in_place_) return;
    const C* row = reinterpret_cast<const C*>(from_->data) + base_ + t0 * from_->sx[2];
    for (index_t t = t0; t < t1; ++t, row += from_->sx[2])
      for (index_t i = 0; i < count_; ++i) AFT_PREFETCH(row + i * lanes<C>, 0, 2);
  }

  /// Rows [t0, t1), copied into `buffer` (room for (t1 - t0) count vectors) unless they can be used in place.
  AFT_COMPILE_ONCE staged_rows<C> rows(index_t t0, index_t t1, C* buffer, C fill = C(0), bool copy = false) const {
    if (in_place_ && !copy)
      return {reinterpret_cast<const C*>(from_->data) + base_ + t0 * from_->sx[2], from_->sx[2], lanes<C>};
    const index_t apart = (t1 - t0) * lanes<C>;
    for (index_t i = 0; i < count_; ++i)
      lane_field<C>(*from_, *grid_, tiles_[i], group_).read(t0, t1, buffer + i * apart, fill);
    return {buffer, lanes<C>, apart};
  }

 private:
  const field* from_;
  const std::array<index_t, 3>* grid_;
  const lane_tile<C>* tiles_;
  index_t count_, group_;
  bool in_place_ = false;
  index_t base_ = 0;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
