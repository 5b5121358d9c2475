// SPDX-License-Identifier: Apache-2.0
/// @file stream/simple_burst.hpp  A burst of simple: a few rows at a time,
/// whose keys enter the fold and whose results are the fold as it then is.
///
/// The slot changes once all numbers of the burst are known to be near. Until
/// then rows may have to go one by one after all, so that results are held back
/// where they would take the place of q.
#pragma once

#include "burst.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

template <class C>
class simple_burst {
  static constexpr index_t L = lanes<C>;
  static constexpr index_t arrays = fold_in_use, together = rows_of_fold;
  static_assert(rows_together<C> % together == 0);

 public:
  static index_t room(index_t width, index_t rows) { return (arrays + rows) * round_up(width, L); }

  simple_burst(const slot_arrays<C>& slot, const burst<C>& b, index_t width, C* buffer)
      : slot_(slot), b_(b), line_(round_up(width, L)), fold_(buffer), held_(buffer + arrays * line_) {}

  /// `count` channels from c on, `at` of the thread's before them. False: not all is near. The slot still is what it
  /// was, and so is q.
  bool run(index_t c, index_t at, index_t count) {
    if (!begin(c, count)) return false;
    const bool alone = b_.gates_alone();
    if (!(alone ? fold_rows<true>(at, count) : fold_rows<false>(at, count)) || !ends_near(count)) return false;
    commit(c, at, count);
    return true;
  }

 private:
  /// The fold as it was, and whether it begins near.
  bool begin(index_t c, index_t count) {
    bool fits = true;
    for (index_t i = 0; i < count; i += L) {
      for (index_t a = 0; a < arrays; ++a) store(fold_ + a * line_ + i, load(slot_.fold(a) + c + i));
      fits = fits && all_of<C>(fold_column<C>(fold_ + i, line_).begins_near(), count - i);
    }
    return fits;
  }
  bool ends_near(index_t count) const {
    bool fits = true;
    for (index_t i = 0; i < count; i += L)
      fits = fits && all_of<C>(fold_column<C>(fold_ + i, line_).ends_near(), count - i);
    return fits;
  }

  /// Where y of row r goes at first.
  C* place_of(index_t r, index_t at) const { return b_.in_place() ? held_ + r * line_ : b_.out[r].y + at; }

  template <bool alone>
  [[gnu::flatten]] AFT_COMPILE_ONCE bool fold_rows(index_t at, index_t count) {
    const vec<C> one(C(1)), most_key(near_numbers<C>::key);
    // As far as the next rows are from these. To the second-level cache, since all of them beside these are more than
    // the first-level one holds (4096 x 512 in 0.8 of the time on one thread; Zen 4, 2026-11).
    const index_t next_k = together * (b_.k[1] - b_.k[0]), next_v = together * (b_.v[1] - b_.v[0]),
                  next_q = alone ? together * (b_.out[1].q - b_.out[0].q) : 0,
                  next_y = together * (b_.out[1].y - b_.out[0].y);
    bool fits = true;
    for (index_t r = 0; r < b_.rows; r += together) {
      const C *k[together], *v[together], *q[together];
      C* y[together];
      for (index_t j = 0; j < together; ++j) {
        k[j] = b_.k[r + j] + at;
        v[j] = b_.v[r + j] + at;
        q[j] = alone ? b_.out[r + j].q + at : nullptr;
        y[j] = place_of(r + j, at);
      }
      for (index_t i = 0; i < count; i += L) {
        const index_t n = min_of(L, count - i);
        fold_column<C> fold(fold_ + i, line_);
        vec_mask<C> good = one == one;
        AFT_UNROLL(4)
        for (index_t j = 0; j < together; ++j) {
          prefetch_second(k[j], i + next_k);
          prefetch_second(v[j], i + next_v);
          if constexpr (alone) prefetch_second(q[j], i + next_q);
          prefetch_to_write(y[j], i + next_y);
          const vec<C> key = load(k[j] + i);
          const split_exp<C> e = exp_split<C>(key);
          good = good & ((xsimd::abs)(key) <= most_key) & fold.add_near(e.mantissa, e.exponent, load(v[j] + i));
          if constexpr (alone) {
            store_some(y[j] + i, gated_average<C>(fold.total_num(), fold.total_den(), one, load(q[j] + i)), n);
          } else {
            const joint_sum<C> sum{fold.total_num(), fold.total_den(), fold.reference()};
            row_results<C> out = b_.out[r + j].from(at);
            out.y = y[j];
            row_values<C>(sum, sum.den * fold.unit(), C(0), i, out).write(i, n, out);
          }
        }
        fold.write(fold_ + i, line_, L);
        fits = fits && all_of<C>(good, n);
      }
    }
    return fits;
  }

  void commit(index_t c, index_t at, index_t count) const {
    for (index_t i = 0; i < count; i += L)
      fold_column<C>(fold_ + i, line_).write(slot_.fold(0) + c + i, slot_.step(), min_of(L, count - i));
    for (index_t r = 0; b_.in_place() && r < b_.rows; ++r)
      for (index_t i = 0; i < count; i += L)
        store_some(b_.out[r].y + at + i, load(held_ + r * line_ + i), min_of(L, count - i));
  }

  const slot_arrays<C>& slot_;
  const burst<C>& b_;
  index_t line_;
  C *fold_, *held_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
