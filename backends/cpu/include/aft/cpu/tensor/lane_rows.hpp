// SPDX-License-Identifier: Apache-2.0
/// @file tensor/lane_rows.hpp  Rows of a field as the lanes of one tile see them, fast where a row is a vector.
#pragma once

#include <cstdint>

#include "../runtime/streaming.hpp"
#include "stage.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// A vector whose lanes lie at places of which neighbouring lanes share a few: a broadcast for each run of them.
template <class C>
class lane_runs {
 public:
  lane_runs() = default;
  explicit lane_runs(const index_t* at) {
    for (index_t l = 0; l < lanes<C>; ++l) {
      lane_[l] = static_cast<C>(l);
      if (l > 0 && at[l] == at[l - 1]) continue;
      if (count_ < most) {
        first_[count_] = static_cast<C>(l);
        at_[count_] = at[l];
      }
      ++count_;
    }
  }
  bool few() const { return count_ > 0 && count_ <= most; }
  /// Of few runs, of numbers of any type.
  template <class T>
  vec<C> operator()(const T* p) const {
    vec<C> x(to_compute<C>(p[at_[0]]));
    const vec<C> lane = load(lane_);
    for (index_t i = 1; i < count_; ++i)
      x = xsimd::select(lane < vec<C>(first_[i]), x, vec<C>(to_compute<C>(p[at_[i]])));
    return x;
  }

 private:
  static constexpr index_t most = 4;
  index_t count_ = 0;
  index_t at_[most] = {};
  C first_[most] = {};  ///< first lane of a run
  C lane_[lanes<C>] = {};
};

/// A lane_field with two more ways to go: a row is a vector, or a few channels that lanes share.
template <class C>
class lane_rows {
 public:
  static constexpr index_t L = lanes<C>;

  /// `group` lanes share one channel of the field.
  AFT_COMPILE_ONCE lane_rows(const field& f, const std::array<index_t, 3>& grid, const lane_tile<C>& tile,
                             index_t group)
      : field_(&f), lanes_(f, grid, f.set ? tile : no_lanes, group) {
    if (!f.set || tile.count != L || grid[0] != 1 || grid[1] != 1) return;
    side_by_side_ = lanes_.whole_rows();
    whole_ = side_by_side_ && f.type == dtype_of<C>;
    if (!side_by_side_) runs_ = lane_runs<C>(lanes_.at);
  }

  /// A row is a vector of C.
  bool whole() const { return whole_; }
  index_t step() const { return field_->sx[2]; }
  C* row(index_t t) const { return reinterpret_cast<C*>(field_->data) + lanes_.base + t * step(); }

  /// out[(t - t0) * out_step + l] for t0 <= t < t1. Unused lanes are filled with `fill`.
  AFT_COMPILE_ONCE void read(index_t t0, index_t t1, C* out, C fill = C(0), index_t out_step = L) const {
    if (!runs_.few() && (out_step == L || !side_by_side_)) return read_lanes(t0, t1, out, fill, out_step);
    visit_storage<C>(
        field_->type, [&](auto* tag) __attribute__((always_inline)) {
          using T = std::remove_pointer_t<decltype(tag)>;
          // Copies, see lane_field::read_any.
          const index_t from_step = step(), to_step = out_step, rows = t1 - t0;
          const T* from = reinterpret_cast<const T*>(field_->data) + t0 * from_step;
          C* to = out;
          if (side_by_side_) {
            from += lanes_.base;
            for (index_t i = 0; i < rows; ++i, to += to_step, from += from_step) store(to, load_as<C>(from));
          } else {
            for (index_t i = 0; i < rows; ++i, to += to_step, from += from_step) store(to, runs_(from));
          }
        });
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
           p.query_rows() * p.d * size >= streaming_from::output_bytes;
#else
    return false;
#endif
  }

  /// Asks for rows of `count` tiles side by side that will be read soon: one is a cache line a row, which the hardware
  /// does not foresee.
  /// Inlined by force: as a function without an effect that GCC 12 knows of, a call of it is dropped.
  [[gnu::always_inline]] void prefetch(index_t t0, index_t t1, index_t count) const {
    if (!side_by_side_ && !runs_.few()) return;
    constexpr index_t line = 64;
    const index_t size = size_of(field_->type), width = (side_by_side_ ? count * L : 1) * size;
    const std::byte* at = field_->data + (lanes_.base + t0 * step()) * size;
    const index_t row = step() * size;
    // Tiles narrower than a line may begin in the middle of one, and so end in one more.
    const bool narrow = L * size < line;
    for (index_t t = t0; t < t1; ++t, at += row) {
      for (index_t i = 0; i < width; i += line) AFT_PREFETCH(at + i, 0, 2);
      if (narrow) AFT_PREFETCH(at + width - 1, 0, 2);
    }
  }

 private:
  AFT_COMPILE_ONCE void read_lanes(index_t t0, index_t t1, C* out, C fill, index_t out_step) const {
    if (out_step == L) return lanes_.read(t0, t1, out, fill);
    constexpr index_t block = 32;
    C rows[block * L];
    for (; t0 < t1; t0 += block) {
      const index_t n = t0 + block < t1 ? block : t1 - t0;
      lanes_.read(t0, t0 + n, rows, fill);
      for (index_t i = 0; i < n; ++i, out += out_step) store(out, load(rows + i * L));
    }
  }

  static constexpr lane_tile<C> no_lanes{};
  const field* field_;
  lane_field<C> lanes_;
  bool side_by_side_ = false;  ///< a row is a vector of numbers of the field's type
  bool whole_ = false;         ///< which is C
  lane_runs<C> runs_;          ///< of lanes that share a channel
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
