// SPDX-License-Identifier: Apache-2.0
/// @file stream/rows.hpp  A row's sums over the kept positions and the fold,
/// the proof of them, and its results.
///
/// Blocks of 64 absolute positions are summed apart, position by position, and
/// joined in order with their powers of two, the fold first: an order that no
/// call can change. Whether a lane is proven, or goes by stream/exact.hpp,
/// follows from the same sums.
#pragma once

#include "../math/gates.hpp"
#include "exact.hpp"
#include "kept.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Where a row's results go, each from the row's first channel on; null: not
/// wanted.
template <class C>
struct row_results {
  const C* q = nullptr;
  C *y = nullptr, *average = nullptr, *lse = nullptr;
  gate gate_fn = gate::none;

  /// Those of the channels from so many on.
  row_results from(index_t n) const {
    row_results other = *this;
    if (q != nullptr) other.q += n;
    other.y += n;
    if (average != nullptr) other.average += n;
    if (lse != nullptr) other.lse += n;
    return other;
  }
};

/// Sums in units of 2^top.
template <class C>
struct joint_sum {
  vec<C> num, den, top;
};

/// The fold's part of a row's sums, and `top` raised to its reference.
template <class C>
AFT_INLINE joint_sum<C> start_sum(const slot_arrays<C>& slot, index_t c, const row_weights<C>& w,
                                  const vec<C>& fold_num, const vec<C>& fold_den) {
  constexpr index_t block = checks::slot_layout::block;
  const vec<C> zero(C(0)), lowest(-empty_mark<C>), one(C(1));
  vec<C> top = lowest;
  if (w.with_fold) {
    const vec<C> reference = load(slot.fold(exponent) + c);
    top = xsimd::select(reference < vec<C>(empty_mark<C>), reference, lowest);
  }
  for (index_t s = w.first; s < w.last; s = (s / block + 1) * block) {
    const vec<C> reference = load(slot.references(s) + c);
    top = xsimd::select(reference > top, reference, top);
  }
  if (!w.with_fold) return {zero, zero, top};
  const vec<C> reference = load(slot.fold(exponent) + c), most(C(100));
  const vec<C> up = (reference - top) - vec<C>(w.shift);
  const vec<C> unit = xsimd::select(reference == vec<C>(special_mark<C>), vec<C>(std::numeric_limits<C>::quiet_NaN()),
                                    times_pow2<C>(one, xsimd::select(up > most, most, up)));
  const vec<C> whole = unit * load(slot.fold(key_unit) + c);
  return {fold_num * whole, fold_den * whole, top};
}

/// The same of the slot's own fold.
template <class C>
AFT_INLINE joint_sum<C> start_sum(const slot_arrays<C>& slot, index_t c, const row_weights<C>& w) {
  if (!w.with_fold) return start_sum<C>(slot, c, w, vec<C>(C(0)), vec<C>(C(0)));
  return start_sum<C>(slot, c, w, load(slot.fold(num) + c) + load(slot.fold(rest_num) + c),
                      load(slot.fold(den) + c) + load(slot.fold(rest_den) + c));
}

/// Vectors of channels whose sums stay in registers, and how many such groups go through a block of positions before
/// any goes on to the next: a position is a row, so that a block lies in memory as one piece. `full` at position 4096
/// takes half the time that it took with one group through all positions, then the next (d 512, Zen 4, 2026-11).
inline constexpr index_t vectors_together = 4, groups_together = 8;

/// Rows of kept positions, of a group's channels.
template <class C>
struct ring_rows {
  const C *row, *begin, *end;  ///< the next one; where all begin, and behind the last one, where they begin again
  index_t step;                ///< from e^k to v of a position, half of what lies between rows
  index_t ahead;               ///< how far behind each lies what is read once all of these have been; 0: unknown
};

/// Adds `count` positions to sums, numerators of M vectors and then denominators. A function of its own for its
/// accumulators' sake: where it is inlined, g++ keeps addresses in registers and them on the stack.
template <class C, index_t M>
AFT_COMPILE_ONCE inline void add_rows(const ring_rows<C>& from, const C* weight, index_t count, C* sums) {
  constexpr index_t L = lanes<C>;
  const ring_rows<C> rows = from;
  const C* row = rows.row;
  const vec<C> zero(C(0));
  vec<C> num[M], den[M];
  AFT_UNROLL(4)
  for (index_t m = 0; m < M; ++m) num[m] = den[m] = zero;
  for (const C* const last = weight + count; weight != last; ++weight) {
    const C *const here = row, *const values = row + rows.step;
    row = values + rows.step;
    if (row == rows.end) row = rows.begin;
    // The hardware does not foresee pieces of rows. Where d is a power of two they fall on the same few lines of the
    // first-level cache, so that they are asked for to the second.
    if (rows.ahead != 0) {
      AFT_UNROLL(4)
      for (index_t m = 0; m < M; ++m) {
        prefetch_second(here, rows.ahead + m * L);
        prefetch_second(values, rows.ahead + m * L);
      }
    }
    if (*weight < C(0)) continue;
    const vec<C> factor(*weight);
    AFT_UNROLL(4)
    for (index_t m = 0; m < M; ++m) {
      const vec<C> e = load(here + m * L);
      den[m] = mul_add(factor, e, den[m]);
      num[m] = mul_add(factor, e * load(values + m * L), num[m]);
    }
  }
  AFT_UNROLL(4)
  for (index_t m = 0; m < M; ++m) {
    store(sums + m * L, num[m]);
    store(sums + (M + m) * L, den[m]);
  }
}

/// The kept positions, for `groups` of M vectors of channels from c on.
template <class C, index_t M>
AFT_INLINE void add_kept(const slot_arrays<C>& slot, index_t c, const row_weights<C>& w, index_t groups,
                         joint_sum<C>* sums) {
  constexpr index_t L = lanes<C>, block = checks::slot_layout::block;
  const vec<C> one(C(1));
  const index_t step = slot.step();
  for (index_t s = w.first; s < w.last;) {
    const C* const reference = slot.references(s) + c;
    const index_t count = min_of((s / block + 1) * block, w.last) - s;
    for (index_t g = 0; g < groups; ++g) {
      const index_t at = c + g * M * L;
      // The next group, or the first one of the next block. A ring's rows are in the second-level cache where it is
      // read again soon, and where not are read as fast without.
      const index_t next = g + 1 < groups ? M * L : 2 * block * step - g * M * L;
      const ring_rows<C> rows{slot.row(s % slot.kept()) + at, slot.row(0) + at, slot.row(slot.kept()) + at, step,
                              slot.folds() ? index_t{0} : next};
      C added[2 * M * L];
      add_rows<C, M>(rows, w.scaled + (s - w.first), count, added);
      for (index_t m = 0; m < M; ++m) {
        joint_sum<C>& sum = sums[g * M + m];
        const vec<C> unit = times_pow2<C>(one, load(reference + (g * M + m) * L) - sum.top);
        sum.num = mul_add(load(added + m * L), unit, sum.num);
        sum.den = mul_add(load(added + (M + m) * L), unit, sum.den);
      }
    }
    s += count;
  }
}

/// Lanes of a vector that are not proven, one by one.
template <class C>
AFT_COMPILE_ONCE inline void finish_apart(const slot_arrays<C>& slot, index_t c, index_t count, const row_weights<C>& w,
                                          const C* proven, C* average, C* lse) {
  for (index_t l = 0; l < count; ++l) {
    if (proven[l] != C(0)) continue;
    const exact_result<C> exact = exact_lane<C>(slot, c + l, w);
    average[l] = exact.average;
    lse[l] = exact.lse;
  }
}

/// Lanes whose sums have lost nothing to underflow or overflow.
template <class C>
AFT_INLINE vec_mask<C> proven_lanes(const row_weights<C>& w, const joint_sum<C>& sum) {
  using bounds = near_numbers<C>;
  const vec<C> size = (xsimd::abs)(sum.num);
  auto proven = (sum.den >= vec<C>(bounds::proof)) & (sum.den <= vec<C>(bounds::largest_den)) &
                (size <= vec<C>(bounds::largest_num)) & (sum.top < vec<C>(empty_mark<C>));
  // The fold alone has lost nothing, whatever its average is.
  if (w.first < w.last) proven = proven & (size >= vec<C>(bounds::smallest_average) * sum.den);
  if (!w.usable) proven = proven & (sum.den < vec<C>(C(0)));
  return proven;
}

/// What a row's results are of proven sums. The gate of a sigmoid and the average share a division, whatever else is
/// wanted: y must not depend on it.
template <class C>
struct row_values {
  vec<C> q, y, average, lse;

  AFT_INLINE row_values(const joint_sum<C>& sum, const vec<C>& den, C shift, index_t at, const row_results<C>& out) {
    const vec<C> one(C(1)), zero(C(0));
    const bool quotient = out.gate_fn == gate::sigmoid;
    q = y = average = lse = zero;
    if (out.gate_fn != gate::none) q = load(out.q + at);
    if (quotient) y = gated_average<C>(sum.num, sum.den, one, q);
    if (!quotient || out.average != nullptr) average = sum.num / sum.den;
    if (!quotient) y = gated(average, out);
    if (out.lse != nullptr) lse = log_shifted<C>(den, sum.top + vec<C>(shift));
  }
  AFT_INLINE vec<C> gated(const vec<C>& o, const row_results<C>& out) const {
    return out.gate_fn == gate::none ? o : o * gate_value<C>(out.gate_fn, q);
  }
  AFT_INLINE void write(index_t at, index_t count, const row_results<C>& out) const {
    if (out.lse != nullptr) store_some(out.lse + at, lse, count);
    if (out.average != nullptr) store_some(out.average + at, average, count);
    store_some(out.y + at, y, count);
  }
};

/// Results of the vector of channels c ... c + count - 1, `at` of them into the
/// row's buffers, from sums in that unit.
template <class C>
AFT_INLINE void finish_row(const slot_arrays<C>& slot, index_t c, index_t count, const row_weights<C>& w,
                           const joint_sum<C>& sum, const vec<C>& unit, index_t at, const row_results<C>& out) {
  const vec<C> one(C(1)), zero(C(0));
  const auto proven = proven_lanes<C>(w, sum);
  row_values<C> values(sum, xsimd::select(proven, sum.den * unit, one), w.shift, at, out);
  if (!xsimd::all(proven)) {
    C is_proven[lanes<C>], average[lanes<C>], lse[lanes<C>];
    store(is_proven, xsimd::select(proven, one, zero));
    store(average, values.average);
    store(lse, values.lse);
    finish_apart<C>(slot, c, count, w, is_proven, average, lse);
    values.average = load(average);
    values.lse = load(lse);
    values.y = xsimd::select(proven, values.y, values.gated(values.average, out));
  }
  values.write(at, count, out);
}

/// A row whose keys have all left the window, its own too: that enters the fold, which is the row's sum.
template <class C>
AFT_INLINE void finish_folded(const slot_arrays<C>& slot, index_t c, index_t count, const row_weights<C>& w,
                              const vec<C>& key, const vec<C>& value, index_t at, const row_results<C>& out) {
  const vec<C> zero(C(0));
  C* const sums = slot.fold(0) + c;
  fold_column<C> column(sums, slot.step());
  const auto near_key = (xsimd::abs)(key) <= vec<C>(near_numbers<C>::key);
  const split_exp<C> e = exp_split<C>(xsimd::select(near_key, key, zero));
  const auto ordinary = column.add(e.mantissa, e.exponent, key, value);
  // The exact path reads them there.
  column.write(sums, slot.step(), count);
  if (!xsimd::all(ordinary)) {
    fold_apart<C>(slot, c, count, ordinary, key, value);
    column = fold_column<C>(sums, slot.step());
  }
  const joint_sum<C> sum = w.with_fold ? joint_sum<C>{column.total_num(), column.total_den(), column.reference()}
                                       : joint_sum<C>{zero, zero, zero};
  finish_row<C>(slot, c, count, w, sum, w.with_fold ? column.unit() : vec<C>(C(1)), at, out);
}

/// `groups` of M vectors of channels from c on, of which `count` in all are the head's.
template <class C, index_t M>
AFT_INLINE void finish_groups(const slot_arrays<C>& slot, index_t c, index_t count, index_t groups, index_t first,
                              const row_weights<C>& w, const row_results<C>& out) {
  constexpr index_t L = lanes<C>;
  joint_sum<C> sums[M * (M > 1 ? groups_together : 1)];
  for (index_t m = 0; m < groups * M; ++m) sums[m] = start_sum<C>(slot, c + m * L, w);
  if (w.usable && w.first < w.last) add_kept<C, M>(slot, c, w, groups, sums);
  for (index_t m = 0; m < groups * M; ++m)
    finish_row<C>(slot, c + m * L, min_of(L, count - m * L), w, sums[m], vec<C>(C(1)), c + m * L - first, out);
}

/// Channels [c, end) of one head.
template <class C>
AFT_COMPILE_ONCE inline void finish_head(const slot_arrays<C>& slot, index_t c, index_t end, index_t first,
                                         const row_weights<C>& w, const row_results<C>& out) {
  constexpr index_t L = lanes<C>, group = vectors_together * L;
  while (c + group <= end) {
    const index_t groups = min_of((end - c) / group, groups_together);
    finish_groups<C, vectors_together>(slot, c, groups * group, groups, first, w, out);
    c += groups * group;
  }
  for (; c < end; c += L) finish_groups<C, 1>(slot, c, end - c, 1, first, w, out);
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
