// SPDX-License-Identifier: Apache-2.0
/// @file stream/kept_burst.hpp  A burst of full, whose rows see all that is
/// kept: block by block of positions, packed once for all rows.
#pragma once

#include "burst.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

template <class C>
class kept_burst {
  static constexpr index_t L = lanes<C>, block = checks::slot_layout::block, R = rows_together<C>;

 public:
  static index_t room(index_t width, index_t rows) { return (width / L + 2) * L * (2 * block + 2 * rows + 1); }
  /// Its positions are in the slot already; rows are a multiple of rows_together.
  kept_burst(const slot_arrays<C>& slot, const burst<C>& b, C* buffer) : slot_(slot), b_(b), buffer_(buffer) {}

  /// Channels [c, end) of one head, `at` of the thread's before them. False:
  /// some row is not proven, and no result is written.
  AFT_COMPILE_ONCE bool run(index_t c, index_t end, index_t at) {
    columns_ = ceil_div(end - c, L);
    packed_ = buffer_;
    sums_ = packed_ + columns_ * 2 * block * L;
    tops_ = sums_ + columns_ * 2 * b_.rows * L;
    const vec<C> zero(C(0)), lowest(-empty_mark<C>);
    for (index_t m = 0; m < columns_; ++m) {
      vec<C> top = lowest;
      for (index_t s = 0; s <= b_.position; s += block) {
        const vec<C> reference = load(slot_.references(s) + c + m * L);
        top = xsimd::select(reference > top, reference, top);
      }
      store(tops_ + m * L, top);
      for (index_t r = 0; r < b_.rows; ++r) {
        store(sums(m, r), zero);
        store(sums(m, r) + L, zero);
      }
    }
    for (index_t s = 0; s < b_.position + b_.rows; s += block) {
      pack(s, min_of(s + block, b_.position + b_.rows), c);
      const bool more = s + block < b_.position + b_.rows;
      for (index_t m = 0; m < columns_; ++m) {
        for (index_t r = 0; r < b_.rows; r += R) {
          if (more) prefetch_part(s + block, c + m * L, r);
          add_block(s, c, m, r);
        }
      }
    }
    for (index_t m = 0; m < columns_; ++m)
      if (!proven(m, min_of(L, end - c - m * L))) return false;
    for (index_t r = 0; r < b_.rows; ++r)
      for (index_t m = 0; m < columns_; ++m)
        row_values<C>(joint(m, r), load(sums(m, r) + L), b_.w[r].shift, at + m * L, b_.out[r])
            .write(at + m * L, min_of(L, end - c - m * L), b_.out[r]);
    return true;
  }

 private:
  C* sums(index_t m, index_t r) const { return sums_ + (m * b_.rows + r) * 2 * L; }
  joint_sum<C> joint(index_t m, index_t r) const {
    return {load(sums(m, r)), load(sums(m, r) + L), load(tops_ + m * L)};
  }

  /// Asks for a vector of the block that begins at s, as much of it as rows [r, r + R) are of all. While blocks were
  /// only asked for as they were packed, that was a fifth of the time (4096 x 512 in calls of 512; Zen 4, 2026-11).
  AFT_INLINE void prefetch_part(index_t s, index_t c, index_t r) const {
    const C* const rows = slot_.row(s) + c;
    for (index_t i = r * 2 * block / b_.rows; i < (r + R) * 2 * block / b_.rows; ++i)
      prefetch_second(rows, i * slot_.step());
  }

  /// e^k and e^k v of positions [s0, s1), one vector of channels after the
  /// other: rows of a slot lie a power of two apart where d is one, and all of
  /// a vector's would want the same few lines of the first-level cache.
  AFT_INLINE void pack(index_t s0, index_t s1, index_t c) {
    constexpr index_t ahead = 8;
    for (index_t s = s0; s < s1; ++s) {
      const C* const row = slot_.row(s) + c;
      // The next pages, which the hardware does not foresee.
      for (index_t m = 0; m < columns_; ++m) {
        prefetch(row, 2 * ahead * slot_.step() + m * L);
        prefetch(row, (2 * ahead + 1) * slot_.step() + m * L);
      }
      C* to = packed_ + (s - s0) * 2 * L;
      for (index_t m = 0; m < columns_; ++m, to += 2 * block * L) {
        const vec<C> e = load(row + m * L);
        store(to, e);
        store(to + L, e * load(row + slot_.step() + m * L));
      }
    }
  }

  /// The block that begins at s, for rows [r, r + R).
  AFT_INLINE void add_block(index_t s, index_t c, index_t m, index_t r) {
    const vec<C> zero(C(0)), one(C(1));
    const index_t last = b_.position + r, stop = min_of(s + block, last + R);
    vec<C> nums[R], dens[R];
    for (index_t i = 0; i < R; ++i) nums[i] = dens[i] = zero;
    add_positions<C, R, false>(packed_ + m * 2 * block * L, s, stop, b_.w + r, 0, last, nums, dens);
    const vec<C> unit = times_pow2<C>(one, load(slot_.references(s) + c + m * L) - load(tops_ + m * L));
    AFT_UNROLL(8)
    for (index_t i = 0; i < R; ++i) {
      C* const at = sums(m, r + i);
      store(at, mul_add(nums[i], unit, load(at)));
      store(at + L, mul_add(dens[i], unit, load(at + L)));
    }
  }

  bool proven(index_t m, index_t count) const {
    const vec<C> zero(C(0));
    vec_mask<C> all = zero == zero;
    for (index_t r = 0; r < b_.rows; ++r) all = all & proven_lanes<C>(b_.w[r], joint(m, r));
    return all_of<C>(all, count);
  }

  const slot_arrays<C>& slot_;
  const burst<C>& b_;
  C* buffer_;
  index_t columns_ = 0;
  C *packed_ = nullptr, *sums_ = nullptr, *tops_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
