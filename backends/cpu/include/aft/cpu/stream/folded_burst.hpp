// SPDX-License-Identifier: Apache-2.0
/// @file stream/folded_burst.hpp  A burst of local or conv, a few
/// vectors of channels at a time: positions enter and leave in registers, rows
/// are summed from a copy of the window in which it moves along, and only then
/// the slot changes.
#pragma once

#include "burst.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Vectors of channels that go together: what they read of a row of the call
/// lies side by side, and their sums fit the registers.
template <class C>
inline constexpr index_t columns_together = 4;

/// Where a position is kept, and those after it.
struct ring_place {
  index_t kept, at;
  ring_place(index_t positions, index_t first) : kept(positions), at(positions > 0 ? first % positions : 0) {}
  void next() {
    if (++at == kept) at = 0;
  }
};

template <class C>
class folded_burst {
  static constexpr index_t L = lanes<C>;
  static constexpr index_t arrays = fold_in_use, together = rows_of_fold;
  static_assert(rows_together<C> % together == 0);

 public:
  /// Elements of the buffer, where no more than `reach` positions are seen.
  static index_t room(index_t reach, index_t rows) {
    return columns_together<C> * L * (2 * (reach + rows) + 2 * rows + arrays);
  }

  folded_burst(const slot_arrays<C>& slot, const burst<C>& b, C* buffer)
      : slot_(slot),
        b_(b),
        kept_(slot.kept()),
        first_(max_of(index_t{0}, b.position - kept_)),
        window_(buffer),
        window_room_(2 * (b.position + b.rows - first_) * L),
        rows_(buffer + columns_together<C> * window_room_),
        fold_(rows_ + columns_together<C> * 2 * b.rows * L) {}

  /// `count` channels, M vectors of them, from c on, `at` of the thread's
  /// before them. False: not all is near. The slot still is what it was, but
  /// for the reference of a block that begins, and so is q.
  template <index_t M>
  AFT_COMPILE_ONCE bool run(index_t c, index_t at, index_t count) {
    const bool alone = b_.gates_alone();
    bool fits = b_.position >= kept_ ? enter<M, true>(c, at, count) : enter<M, false>(c, at, count);
    for (index_t m = 0; fits && m < M; ++m)
      fits = all_of<C>(alone ? sum<true>(c + m * L, m, at, count) : sum<false>(c + m * L, m, at, count), count - m * L);
    if (fits) commit<M>(c, at, count);
    return fits;
  }

 private:
  /// Rows ahead that are asked for: of a row only a few lines are read at a time, which the hardware does not foresee.
  /// To the second-level cache: where d is a power of two they fall on the same few lines of the first-level one, and
  /// would be gone when their turn comes (local with 32 keys, 4096 x 512: 0.87 of the time; Zen 4, 2026-11).
  static constexpr index_t ahead = 8;

  /// e^k and e^k v of a position.
  C* window(index_t m, index_t s) const { return window_ + m * window_room_ + 2 * (s - first_) * L; }
  /// Of row r: what the fold is there, then y where it would take the place of q.
  C* place_of(index_t m, index_t r) const { return rows_ + (m * b_.rows + r) * 2 * L; }
  C* fold_of(index_t m) const { return fold_ + m * arrays * L; }

  template <index_t M>
  AFT_INLINE static void prefetch_columns(const C* at) {
    for (index_t m = 0; m < M; ++m) prefetch_second(at, m * L);
  }
  template <index_t M>
  AFT_INLINE void prefetch_row(index_t r, index_t at) const {
    if (r >= b_.rows) return;
    prefetch_columns<M>(b_.k[r] + at);
    prefetch_columns<M>(b_.v[r] + at);
    if (b_.out[r].q != nullptr) prefetch_columns<M>(b_.out[r].q + at);
    for (index_t m = 0; m < M; ++m) prefetch_to_write(b_.out[r].y + at, m * L);
  }

  /// Positions enter and, where the window `moves` along, others leave for the fold, a few rows at a time.
  template <index_t M, bool moves>
  [[gnu::flatten]] AFT_COMPILE_ONCE bool enter(index_t c, index_t at, index_t count) {
    const index_t step = slot_.step();
    ring_place place(kept_, first_);
    for (index_t s = first_; s < b_.position; ++s, place.next()) {
      const C* const row = slot_.row(place.at) + c;
      for (index_t m = 0; m < M; ++m) {
        const vec<C> e = load(row + m * L);
        store(window(m, s), e);
        store(window(m, s) + L, e * load(row + step + m * L));
      }
    }
    const bool begins = b_.position % checks::slot_layout::block == 0;
    bool fits = true;
    for (index_t m = 0; m < M; ++m) {
      for (index_t a = 0; a < arrays; ++a) store(fold_of(m) + a * L, load(slot_.fold(a) + c + m * L));
      if (moves) fits = fits && all_of<C>(fold_column<C>(fold_of(m), L).begins_near(), count - m * L);
      if (begins) {
        const vec<C> reference = exp_split<C>(load(b_.k[0] + at + m * L)).exponent + vec<C>(near_numbers<C>::slack);
        store_some(slot_.references(b_.position) + c + m * L, reference, min_of(L, count - m * L));
      }
    }
    for (index_t r = 0; r < ahead; ++r) prefetch_row<M>(r, at);
    place = ring_place(kept_, first_);
    for (index_t r = 0; fits && r < b_.rows; r += together) {
      // Of the positions that leave those that were there before.
      const C* old[together];
      for (index_t j = 0; j < together; ++j, place.next()) {
        prefetch_row<M>(r + j + ahead, at);
        old[j] = moves && r + j < kept_ ? slot_.row(place.at) + c : nullptr;
      }
      for (index_t m = 0; m < M; ++m) fits = fits && enter_rows<moves>(c, m, r, at, min_of(L, count - m * L), old);
    }
    for (index_t m = 0; moves && m < M; ++m)
      fits = fits && all_of<C>(fold_column<C>(fold_of(m), L).ends_near(), count - m * L);
    return fits;
  }

  template <bool moves>
  AFT_INLINE bool enter_rows(index_t c, index_t m, index_t r, index_t at, index_t n, const C* const* old) const {
    using bounds = near_numbers<C>;
    const vec<C> most_key(bounds::key), most_up(bounds::above_reference), least(bounds::least);
    const vec<C> reference = load(slot_.references(b_.position) + c + m * L);
    const index_t step = slot_.step();
    fold_column<C> fold(fold_of(m), L);
    vec_mask<C> good = most_key == most_key;
    C* here = window(m, b_.position + r);
    AFT_UNROLL(4)
    for (index_t j = 0; j < together; ++j, here += 2 * L) {
      const vec<C> key = load(b_.k[r + j] + at + m * L), value = load(b_.v[r + j] + at + m * L);
      const split_exp<C> e = exp_split<C>(key);
      const vec<C> up = e.exponent - reference, scaled = times_pow2<C>(e.mantissa, up);
      good = good & ((xsimd::abs)(key) <= most_key) & (up <= most_up);
      store(here, scaled);
      store(here + L, scaled * value);
      if constexpr (moves) {
        const index_t left = b_.position + r + j - kept_;
        if (old[j] != nullptr) {
          const vec<C> a = load(old[j] + m * L);
          good = good & (a >= least) &
                 fold.add_near(a, load(slot_.references(left) + c + m * L), load(old[j] + step + m * L));
        } else {
          const vec<C> a = load(window(m, left));
          good = good & (a >= least) & fold.add_near(a, reference, load(b_.v[r + j - kept_] + at + m * L));
        }
      }
      store(place_of(m, r + j), fold.total_num());
      store(place_of(m, r + j) + L, fold.total_den());
    }
    if (moves) fold.write(fold_of(m), L, L);
    return all_of<C>(good, n);
  }

  /// Sums of all rows; the lanes where all are proven.
  template <bool alone>
  AFT_INLINE vec_mask<C> sum(index_t c, index_t m, index_t at, index_t count) {
    vec_mask<C> proven = vec<C>(C(0)) == vec<C>(C(0));
    const bool moves = b_.position >= kept_;
    constexpr index_t R = rows_together<C>;
    index_t r = 0;
    if (kept_ >= R || !moves) {
      for (; r + R <= b_.rows; r += R)
        proven = proven &
                 (moves ? sum_rows<R, true, alone>(c, m, r, at, count) : sum_rows<R, false, alone>(c, m, r, at, count));
    }
    for (; r < b_.rows; ++r) proven = proven & sum_rows<1, false, alone>(c, m, r, at, count);
    return proven;
  }

  template <index_t R, bool moves, bool alone>
  AFT_INLINE vec_mask<C> sum_rows(index_t c, index_t m, index_t r, index_t at, index_t count) {
    constexpr index_t block = checks::slot_layout::block;
    const vec<C> zero(C(0)), one(C(1));
    const row_weights<C>* const w = b_.w + r;
    joint_sum<C> joint[R];
    AFT_UNROLL(8)
    for (index_t i = 0; i < R; ++i)
      joint[i] = start_sum<C>(slot_, c, w[i], load(place_of(m, r + i)), load(place_of(m, r + i) + L));
    const index_t first = w[0].first, last = w[0].last - 1;
    for (index_t s = first, stop; s < w[R - 1].last; s = stop) {
      stop = min_of((s / block + 1) * block, w[R - 1].last);
      vec<C> nums[R], dens[R];
      for (index_t i = 0; i < R; ++i) nums[i] = dens[i] = zero;
      add_positions<C, R, moves>(window(m, s), s, stop, w, first, last, nums, dens);
      const vec<C> reference = load(slot_.references(s) + c);
      AFT_UNROLL(8)
      for (index_t i = 0; i < R; ++i) {
        if (moves && w[i].first >= stop) continue;
        const vec<C> unit = times_pow2<C>(one, reference - joint[i].top);
        joint[i].num = mul_add(nums[i], unit, joint[i].num);
        joint[i].den = mul_add(dens[i], unit, joint[i].den);
      }
    }
    vec_mask<C> proven = zero == zero;
    AFT_UNROLL(8)
    for (index_t i = 0; i < R; ++i) {
      proven = proven & proven_lanes<C>(w[i], joint[i]);
      finish<alone>(m, r + i, at, count, joint[i]);
    }
    return proven;
  }

  template <bool alone>
  AFT_INLINE void finish(index_t m, index_t r, index_t at, index_t count, const joint_sum<C>& sum) const {
    const index_t n = min_of(L, count - m * L);
    row_results<C> out = b_.out[r].from(at + m * L);
    if (b_.in_place()) out.y = place_of(m, r);
    if constexpr (alone) {
      store_some(out.y, gated_average<C>(sum.num, sum.den, vec<C>(C(1)), load(out.q)), n);
    } else {
      row_values<C>(sum, sum.den, b_.w[r].shift, 0, out).write(0, n, out);
    }
  }

  /// The slot, then results that were held back.
  template <index_t M>
  AFT_INLINE void commit(index_t c, index_t at, index_t count) const {
    const index_t step = slot_.step();
    for (index_t m = 0; m < M; ++m)
      fold_column<C>(fold_of(m), L).write(slot_.fold(0) + c + m * L, step, min_of(L, count - m * L));
    const index_t stays = max_of(index_t{0}, b_.rows - kept_);
    ring_place place(kept_, b_.position + stays);
    for (index_t r = stays; r < b_.rows; ++r, place.next()) {
      for (index_t m = 0; m < M; ++m) {
        const index_t n = min_of(L, count - m * L);
        C* const row = slot_.row(place.at) + c + m * L;
        store_some(row, load(window(m, b_.position + r)), n);
        store_some(row + step, load(b_.v[r] + at + m * L), n);
        store_some(slot_.keys(place.at) + c + m * L, load(b_.k[r] + at + m * L), n);
      }
    }
    for (index_t r = 0; b_.in_place() && r < b_.rows; ++r)
      for (index_t m = 0; m < M; ++m)
        store_some(b_.out[r].y + at + m * L, load(place_of(m, r)), min_of(L, count - m * L));
  }

  const slot_arrays<C>& slot_;
  const burst<C>& b_;
  index_t kept_, first_;
  C* window_;
  index_t window_room_;
  C *rows_, *fold_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
