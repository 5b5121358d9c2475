// SPDX-License-Identifier: Apache-2.0
/// @file tensor/lane_rows.hpp  Rows of a field as the lanes of one tile see them, fast where a row is a vector.
#pragma once

#include <cstdint>

#include "../runtime/streaming.hpp"
#include "stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// A lane_field with two more ways to go: a row is a vector, or a few channels that lanes share.
template <class C>
class lane_rows {
 public:
  static constexpr index_t L = lanes<C>;

  /// `group` lanes share one channel of the field.
  AFT_COMPILE_ONCE lane_rows(const field& f, const std::array<index_t, 3>& grid, const lane_tile<C>& tile,
                             index_t group)
      : field_(&f), lanes_(f, grid, f.set ? tile : no_lanes, group) {
    if (!f.set || f.type != dtype_of<C> || tile.count != L || grid[0] != 1 || grid[1] != 1) return;
    whole_ = lanes_.whole_rows();
    at_[0] = lanes_.base;
    for (index_t l = 0; !whole_ && l < L; ++l) {
      lane_[l] = static_cast<C>(l);
      if (l > 0 && lanes_.at[l] == lanes_.at[l - 1]) continue;
      if (runs_ < most_runs) {
        first_[runs_] = static_cast<C>(l);
        at_[runs_] = lanes_.at[l];
      }
      ++runs_;
    }
    if (runs_ > most_runs) runs_ = 0;
  }

  /// A row is a vector of C.
  bool whole() const { return whole_; }
  index_t step() const { return field_->sx[2]; }
  C* row(index_t t) const { return reinterpret_cast<C*>(field_->data) + at_[0] + t * step(); }

  /// out[(t - t0) * out_step + l] for t0 <= t < t1. Unused lanes are filled with `fill`.
  AFT_COMPILE_ONCE void read(index_t t0, index_t t1, C* out, C fill = C(0), index_t out_step = L) const {
    if (runs_ > 0) {
      const C* from = reinterpret_cast<const C*>(field_->data) + t0 * step();
      const vec<C> lane = load(lane_);
      for (index_t t = t0; t < t1; ++t, out += out_step, from += step()) {
        vec<C> x(from[at_[0]]);
        for (index_t i = 1; i < runs_; ++i) x = xsimd::select(lane < vec<C>(first_[i]), x, vec<C>(from[at_[i]]));
        store(out, x);
      }
    } else if (out_step == L) {
      lanes_.read(t0, t1, out, fill);
    } else if (whole_) {
      const C* from = row(t0);
      const index_t from_step = step();
      for (index_t t = t0; t < t1; ++t, out += out_step, from += from_step) store(out, load(from));
    } else {
      constexpr index_t block = 32;
      C rows[block * L];
      for (; t0 < t1; t0 += block) {
        const index_t n = t0 + block < t1 ? block : t1 - t0;
        lanes_.read(t0, t0 + n, rows, fill);
        for (index_t i = 0; i < n; ++i, out += out_step) store(out, load(rows + i * L));
      }
    }
  }

  /// The inverse of read.
  AFT_COMPILE_ONCE void write(const problem& p, index_t t0, index_t t1, const C* in) const {
    lanes_.write(t0, t1, in, streams_rows(p));
  }

  /// True where rows had better be written by streaming stores: vectors are whole lines, and there are more of them
  /// than a cache would keep for their reader.
  bool streams_rows([[maybe_unused]] const problem& p) const {
#if defined(__AVX512F__)
    constexpr index_t size = sizeof(C);
    return whole_ && reinterpret_cast<std::uintptr_t>(row(0)) % 64 == 0 && step() * size % 64 == 0 &&
           p.B * p.Tq * p.d * size >= streaming_from::output_bytes;
#else
    return false;
#endif
  }

  /// Asks for rows of `count` tiles side by side that will be read soon: one is a cache line a row, which the hardware
  /// does not foresee.
  /// Inlined by force: as a function without an effect that GCC 12 knows of, a call of it is dropped.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1, index_t count) const {
    if (!whole_ && runs_ == 0) return;
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(C));
    const index_t width = whole_ ? count * L : 1;
    const C* at = row(t0);
    for (index_t t = t0; t < t1; ++t, at += step())
      for (index_t i = 0; i < width; i += line) AFT_PREFETCH(at + i, 0, 2);
  }

 private:
  static constexpr index_t most_runs = 4;
  static constexpr lane_tile<C> no_lanes{};
  const field* field_;
  lane_field<C> lanes_;
  bool whole_ = false;
  index_t runs_ = 0;  ///< of lanes that share a channel; 0: any lanes
  index_t at_[most_runs] = {};
  C first_[most_runs] = {};  ///< first lane of a run
  C lane_[L] = {};
};

/// Rows [t0, t1) of `count` lane tiles, out[i * apart + (t - t0) * out_step + lane]; `share` and `fill` as lane_rows
/// has them. Where tiles lie side by side, row by row over all of them: memory is then read in longer runs than a
/// line.
template <class C>
AFT_COMPILE_ONCE void read_tiles(const field& f, const std::array<index_t, 3>& grid, const lane_tile<C>* tiles,
                                 index_t count, index_t share, index_t t0, index_t t1, C* out, index_t apart,
                                 index_t out_step, C fill = C(0)) {
  constexpr index_t L = lanes<C>;
  const lane_group<C> group(f, grid, tiles, count, share);
  if (!group.in_place()) {
    for (index_t i = 0; i < count; ++i)
      lane_rows<C>(f, grid, tiles[i], share).read(t0, t1, out + i * apart, fill, out_step);
    return;
  }
  const index_t step = group.step();
  const C* from = group.first() + t0 * step;
  for (index_t t = t0; t < t1; ++t, from += step, out += out_step)
    for (index_t i = 0; i < count; ++i) store(out + i * apart, load(from + i * L));
}

}  // namespace aft::inline AFT_ISA::cpu_impl
