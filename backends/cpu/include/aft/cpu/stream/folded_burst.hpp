// SPDX-License-Identifier: Apache-2.0
/// @file stream/folded_burst.hpp  A burst of simple, local or conv, a few
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

 public:
  /// Elements of the buffer, where no more than `reach` positions are seen.
  static index_t room(index_t reach, index_t rows) { return columns_together<C> * L * (2 * (reach + rows) + 2 * rows); }

  folded_burst(const slot_arrays<C>& slot, const burst<C>& b, C* buffer)
      : slot_(slot),
        b_(b),
        kept_(slot.kept()),
        first_(max_of(index_t{0}, b.position - kept_)),
        window_(buffer),
        window_room_(2 * (b.position + b.rows - first_) * L),
        rows_(buffer + columns_together<C> * window_room_) {}

  /// `count` channels, M vectors of them, from c on, `at` of the thread's
  /// before them. False: not all is near. The slot still is what it was, but
  /// for the reference of a block that begins, and so are the results.
  template <index_t M>
  bool run(index_t c, index_t at, index_t count) {
    if (kept_ > 0) return run_columns<M, true>(c, at, count);
    return b_.w[0].with_fold && run_columns<M, false>(c, at, count);
  }

 private:
  /// Rows ahead that are asked for: of a row only a few lines are read at a time, which the hardware does not foresee.
  static constexpr index_t ahead = 8;

  template <index_t M, bool keeps>
  AFT_COMPILE_ONCE bool run_columns(index_t c, index_t at, index_t count) {
    if (!enter<M, keeps>(c, at, count)) return false;
    for (index_t m = 0; keeps && m < M; ++m)
      if (!all_of<C>(sum(c + m * L, m, at, count), count - m * L)) return false;
    commit<M, keeps>(c, at, count);
    return true;
  }

  /// e^k and e^k v of a position.
  C* window(index_t m, index_t s) const { return window_ + m * window_room_ + 2 * (s - first_) * L; }
  /// Of row r: what the fold is there, then y and the average.
  C* place_of(index_t m, index_t r) const { return rows_ + (m * b_.rows + r) * 2 * L; }

  /// Results of a row, beside the tensors until all is known to be near.
  AFT_INLINE void finish(index_t m, index_t r, index_t at, index_t count, const joint_sum<C>& sum) const {
    const row_results<C>& out = b_.out[r];
    const row_values<C> values(sum, sum.den, b_.w[r].shift, at + m * L, out);
    store(place_of(m, r), values.y);
    if (out.average != nullptr) store(place_of(m, r) + L, values.average);
    if (out.lse != nullptr) store_some(out.lse + at + m * L, values.lse, min_of(L, count - m * L));
  }
  template <index_t M>
  AFT_INLINE static void prefetch_columns(const C* at) {
    for (index_t m = 0; m < M; ++m) prefetch(at, m * L);
  }

  /// Positions enter and others leave for the fold, row by row.
  template <index_t M, bool keeps>
  AFT_INLINE bool enter(index_t c, index_t at, index_t count) {
    using bounds = near_numbers<C>;
    const vec<C> zero(C(0)), most_key(bounds::key), most_up(bounds::above_reference);
    const index_t step = slot_.step();
    ring_place place(kept_, first_);
    for (index_t s = first_; keeps && s < b_.position; ++s, place.next()) {
      const C* const row = slot_.row(place.at) + c;
      for (index_t m = 0; m < M; ++m) {
        const vec<C> e = load(row + m * L);
        store(window(m, s), e);
        store(window(m, s) + L, e * load(row + step + m * L));
      }
    }
    vec_mask<C> good[M];
    fold_column<C> fold[M];
    vec<C> references[M];
    const bool moves = b_.position >= kept_, begins = keeps && b_.position % checks::slot_layout::block == 0;
    for (index_t m = 0; m < M; ++m) {
      fold[m] = fold_column<C>(slot_.fold(0) + c + m * L, step);
      good[m] = zero == zero;
      if (moves) good[m] = fold[m].begins_near();
      references[m] = keeps && !begins ? load(slot_.references(b_.position) + c + m * L) : zero;
    }
    place = ring_place(kept_, first_);
    for (index_t r = 0; r < b_.rows; ++r, place.next()) {
      const C *const k = b_.k[r] + at, *const v = b_.v[r] + at;
      const index_t left = b_.position + r - kept_, gone = r - kept_;
      const C* const old = keeps && left >= 0 && gone < 0 ? slot_.row(place.at) + c : nullptr;
      if (r + ahead < b_.rows) {
        prefetch_columns<M>(b_.k[r + ahead] + at);
        prefetch_columns<M>(b_.v[r + ahead] + at);
        if (b_.out[r].q != nullptr) prefetch_columns<M>(b_.out[r + ahead].q + at);
        for (index_t m = 0; m < M; ++m) prefetch_to_write(b_.out[r + ahead].y + at, m * L);
      }
      AFT_UNROLL(4)
      for (index_t m = 0; m < M; ++m) {
        const vec<C> key = load(k + m * L), value = load(v + m * L);
        const split_exp<C> e = exp_split<C>(key);
        good[m] = good[m] & ((xsimd::abs)(key) <= most_key);
        if constexpr (!keeps) {
          good[m] = good[m] & fold[m].add_near(e.mantissa, e.exponent, value);
        } else {
          if (begins && r == 0) {
            references[m] = e.exponent + vec<C>(bounds::slack);
            store_some(slot_.references(b_.position) + c + m * L, references[m], min_of(L, count - m * L));
          }
          const vec<C> up = e.exponent - references[m], scaled = times_pow2<C>(e.mantissa, up);
          good[m] = good[m] & (up <= most_up);
          C* const here = window(m, b_.position + r);
          store(here, scaled);
          store(here + L, scaled * value);
          if (left >= 0) {
            const vec<C> a = load(old != nullptr ? old + m * L : window(m, left));
            const vec<C> exponent = old != nullptr ? load(slot_.references(left) + c + m * L) : references[m];
            const vec<C> out = load(old != nullptr ? old + step + m * L : b_.v[gone] + at + m * L);
            good[m] = good[m] & (a >= vec<C>(bounds::least)) & fold[m].add_near(a, exponent, out);
          }
        }
        if constexpr (keeps) {
          store(place_of(m, r), fold[m].total_num());
          store(place_of(m, r) + L, fold[m].total_den());
        } else {
          finish(m, r, at, count, {fold[m].total_num(), fold[m].total_den(), fold[m].reference()});
        }
      }
    }
    bool all = true;
    for (index_t m = 0; m < M; ++m) {
      if (moves) good[m] = good[m] & fold[m].ends_near();
      all = all && all_of<C>(good[m], count - m * L);
      // Not in the slot until all is known to be near.
      fold_[m] = fold[m];
    }
    return all;
  }

  /// Sums of all rows; the lanes where all are proven.
  AFT_INLINE vec_mask<C> sum(index_t c, index_t m, index_t at, index_t count) {
    vec_mask<C> proven = vec<C>(C(0)) == vec<C>(C(0));
    const bool moves = b_.position >= kept_;
    constexpr index_t R = rows_together<C>;
    index_t r = 0;
    if (kept_ >= R || !moves) {
      for (; r + R <= b_.rows; r += R)
        proven = proven & (moves ? sum_rows<R, true>(c, m, r, at, count) : sum_rows<R, false>(c, m, r, at, count));
    }
    for (; r < b_.rows; ++r) proven = proven & sum_rows<1, false>(c, m, r, at, count);
    return proven;
  }

  template <index_t R, bool moves>
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
      finish(m, r + i, at, count, joint[i]);
    }
    return proven;
  }

  /// The slot, then the results, which may lie where keys and values do.
  template <index_t M, bool keeps>
  AFT_INLINE void commit(index_t c, index_t at, index_t count) {
    const index_t step = slot_.step();
    for (index_t m = 0; m < M; ++m) {
      const index_t n = min_of(L, count - m * L);
      fold_[m].write(slot_.fold(0) + c + m * L, step, n);
    }
    const index_t stays = max_of(index_t{0}, b_.rows - kept_);
    ring_place place(kept_, b_.position + stays);
    for (index_t r = stays; keeps && r < b_.rows; ++r, place.next()) {
      for (index_t m = 0; m < M; ++m) {
        const index_t n = min_of(L, count - m * L);
        C* const row = slot_.row(place.at) + c + m * L;
        store_some(row, load(window(m, b_.position + r)), n);
        store_some(row + step, load(b_.v[r] + at + m * L), n);
        store_some(slot_.keys(place.at) + c + m * L, load(b_.k[r] + at + m * L), n);
      }
    }
    for (index_t r = 0; r < b_.rows; ++r) {
      for (index_t m = 0; m < M; ++m) {
        const index_t n = min_of(L, count - m * L), to = at + m * L;
        store_some(b_.out[r].y + to, load(place_of(m, r)), n);
        if (b_.out[r].average != nullptr) store_some(b_.out[r].average + to, load(place_of(m, r) + L), n);
      }
    }
  }

  const slot_arrays<C>& slot_;
  const burst<C>& b_;
  index_t kept_, first_;
  C* window_;
  index_t window_room_;
  C* rows_;
  fold_column<C> fold_[columns_together<C>];
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
