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
};

/// Sums in units of 2^top.
template <class C>
struct joint_sum {
  vec<C> num, den, top;
};

/// The fold of `M` vectors of channels from c on, and `top` raised to its
/// reference.
template <class C, index_t M>
AFT_INLINE void start_sums(const slot_arrays<C>& slot, index_t c, const row_weights<C>& w, joint_sum<C> (&sums)[M]) {
  const vec<C> zero(C(0)), lowest(-empty_mark<C>), one(C(1));
  for (index_t m = 0; m < M; ++m) {
    const index_t at = c + m * lanes<C>;
    vec<C> top = lowest;
    if (w.with_fold) {
      const vec<C> reference = load(slot.fold(exponent) + at);
      top = xsimd::select(reference < vec<C>(empty_mark<C>), reference, lowest);
    }
    for (index_t s = w.first; s < w.last; s = (s / checks::slot_layout::block + 1) * checks::slot_layout::block) {
      const vec<C> reference = load(slot.references(s) + at);
      top = xsimd::select(reference > top, reference, top);
    }
    sums[m] = {zero, zero, top};
    if (!w.with_fold) continue;
    const vec<C> reference = load(slot.fold(exponent) + at), most(C(100));
    const vec<C> up = (reference - top) - vec<C>(w.shift);
    const vec<C> unit = xsimd::select(reference == vec<C>(special_mark<C>), vec<C>(std::numeric_limits<C>::quiet_NaN()),
                                      times_pow2<C>(one, xsimd::select(up > most, most, up)));
    sums[m].num = (load(slot.fold(num) + at) + load(slot.fold(rest_num) + at)) * unit;
    sums[m].den = (load(slot.fold(den) + at) + load(slot.fold(rest_den) + at)) * unit;
  }
}

/// The kept positions.
template <class C, index_t M>
[[gnu::flatten]] AFT_INLINE void add_kept(const slot_arrays<C>& slot, index_t c, const row_weights<C>& w,
                                          joint_sum<C> (&sums)[M]) {
  constexpr index_t L = lanes<C>;
  const vec<C> zero(C(0)), one(C(1));
  const index_t kept = slot.kept(), step = slot.step();
  const C* const begin = slot.row(0) + c;
  const C* const end = begin + 2 * kept * step;
  const C* row = begin + w.first % kept * 2 * step;
  const C* weight = w.scaled;
  for (index_t s = w.first; s < w.last;) {
    const C* const reference = slot.references(s) + c;
    const index_t stop = min_of((s / checks::slot_layout::block + 1) * checks::slot_layout::block, w.last);
    vec<C> num_block[M], den_block[M];
    for (index_t m = 0; m < M; ++m) num_block[m] = den_block[m] = zero;
    for (; s < stop; ++s, ++weight) {
      const C* const here = row;
      row += 2 * step;
      if (row == end) row = begin;
      if (*weight < C(0)) continue;
      const vec<C> factor(*weight);
      AFT_UNROLL(4)
      for (index_t m = 0; m < M; ++m) {
        const vec<C> e = load(here + m * L);
        den_block[m] = mul_add(factor, e, den_block[m]);
        num_block[m] = mul_add(factor * e, load(here + step + m * L), num_block[m]);
      }
    }
    for (index_t m = 0; m < M; ++m) {
      const vec<C> unit = times_pow2<C>(one, load(reference + m * L) - sums[m].top);
      sums[m].num = mul_add(num_block[m], unit, sums[m].num);
      sums[m].den = mul_add(den_block[m], unit, sums[m].den);
    }
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

/// Results of the vector of channels c ... c + count - 1, `at` of them into the
/// row's buffers.
template <class C>
AFT_INLINE void finish_row(const slot_arrays<C>& slot, index_t c, index_t count, const row_weights<C>& w,
                           const joint_sum<C>& sum, index_t at, const row_results<C>& out) {
  using bounds = near_numbers<C>;
  const vec<C> one(C(1)), zero(C(0));
  const vec<C> size = (xsimd::abs)(sum.num);
  auto proven = (sum.den >= vec<C>(bounds::proof)) & (sum.den <= vec<C>(bounds::largest_den)) &
                (size <= vec<C>(bounds::largest_num)) & (sum.top < vec<C>(empty_mark<C>));
  // The fold alone has lost nothing, whatever its average is.
  if (w.first < w.last) proven = proven & (size >= vec<C>(bounds::smallest_average) * sum.den);
  if (!w.usable) proven = proven & (sum.den < zero);
  // The gate of a sigmoid and the average share a division, whatever else is
  // wanted: y must not depend on it.
  const bool quotient = out.gate_fn == gate::sigmoid;
  vec<C> q = zero, y = zero, o = zero, log = zero;
  if (out.gate_fn != gate::none) q = load(out.q + at);
  if (quotient) y = gated_average<C>(sum.num, sum.den, one, q);
  if (!quotient || out.average != nullptr) o = sum.num / sum.den;
  if (!quotient) y = out.gate_fn == gate::none ? o : o * gate_value<C>(out.gate_fn, q);
  if (out.lse != nullptr) log = log_shifted<C>(xsimd::select(proven, sum.den, one), sum.top + vec<C>(w.shift));
  if (!xsimd::all(proven)) {
    C is_proven[lanes<C>], lane_o[lanes<C>], lane_lse[lanes<C>];
    store(is_proven, xsimd::select(proven, one, zero));
    store(lane_o, o);
    store(lane_lse, log);
    finish_apart<C>(slot, c, count, w, is_proven, lane_o, lane_lse);
    o = load(lane_o);
    log = load(lane_lse);
    y = xsimd::select(proven, y, out.gate_fn == gate::none ? o : o * gate_value<C>(out.gate_fn, q));
  }
  if (out.lse != nullptr) store_some(out.lse + at, log, count);
  if (out.average != nullptr) store_some(out.average + at, o, count);
  store_some(out.y + at, y, count);
}

/// A row whose keys have all left the window: the fold as it is.
template <class C>
AFT_COMPILE_ONCE inline void finish_fold(const slot_arrays<C>& slot, index_t c, index_t end, index_t first,
                                         const row_weights<C>& w, const row_results<C>& out) {
  const index_t step = slot.step();
  for (; c < end; c += lanes<C>) {
    const C* const at = slot.fold(0) + c;
    finish_row<C>(slot, c, min_of(lanes<C>, end - c), w,
                  {load(at + num * step) + load(at + rest_num * step),
                   load(at + den * step) + load(at + rest_den * step), load(at + exponent * step)},
                  c - first, out);
  }
}

/// Channels [c, end) of one head.
template <class C>
AFT_COMPILE_ONCE inline void finish_head(const slot_arrays<C>& slot, index_t c, index_t end, index_t first,
                                         const row_weights<C>& w, const row_results<C>& out) {
  constexpr index_t L = lanes<C>, together = 4;
  if (w.first == w.last && w.with_fold) return finish_fold<C>(slot, c, end, first, w, out);
  for (; c + together * L <= end; c += together * L) {
    joint_sum<C> sums[together];
    start_sums<C, together>(slot, c, w, sums);
    if (w.usable && w.first < w.last) add_kept<C, together>(slot, c, w, sums);
    for (index_t m = 0; m < together; ++m) finish_row<C>(slot, c + m * L, L, w, sums[m], c + m * L - first, out);
  }
  for (; c < end; c += L) {
    joint_sum<C> sums[1];
    start_sums<C, 1>(slot, c, w, sums);
    if (w.usable && w.first < w.last) add_kept<C, 1>(slot, c, w, sums);
    finish_row<C>(slot, c, min_of(L, end - c), w, sums[0], c - first, out);
  }
}

/// Rows that are summed at a time where nothing leaves: as many as have room in
/// registers beside their weights.
template <class C>
inline constexpr index_t rows_together = sizeof(vec<C>) == 64 ? 8 : 4;

/// What several rows of a head have summed, channel by channel.
template <class C>
struct joint_rows {
  C *num = nullptr, *den = nullptr,
    *top = nullptr;  ///< num and den `width` apart from row to row
  index_t width = 0;

  static index_t room(index_t width) { return (2 * rows_together<C> + 1) * (width + lanes<C>); }
  joint_rows(C* at, index_t channels) : width(channels + lanes<C>) {
    num = at;
    den = at + rows_together<C> * width;
    top = den + rows_together<C> * width;
  }
};

/// Positions [s, stop) of one block for R rows and the vector of channels from
/// c on: the sums that add_kept has.
template <class C, index_t R>
[[gnu::flatten]] AFT_INLINE void add_block(const slot_arrays<C>& slot, index_t c, index_t at, index_t begin,
                                           index_t position, const row_weights<C>* w, const joint_rows<C>& sums) {
  const vec<C> zero(C(0)), one(C(1));
  const index_t step = slot.step(), end = min_of(begin + checks::slot_layout::block, position + 1);
  vec<C> nums[R], dens[R];
  for (index_t r = 0; r < R; ++r) nums[r] = dens[r] = zero;
  const C* row = slot.row(begin) + c;
  const C* weights[R];
  for (index_t r = 0; r < R; ++r) weights[r] = w[r].scaled;
  for (index_t s = begin; s < end; ++s, row += 2 * step) {
    const vec<C> e = load(row), v = load(row + step);
    AFT_UNROLL(8)
    for (index_t r = 0; r < R; ++r) {
      const vec<C> factor(weights[r][s]);
      dens[r] = mul_add(factor, e, dens[r]);
      nums[r] = mul_add(factor * e, v, nums[r]);
    }
  }
  // Row r sees r positions more.
  if (begin + checks::slot_layout::block > position + 1) {
    for (index_t s = end; s < position + R; ++s, row += 2 * step) {
      const vec<C> e = load(row), v = load(row + step);
      AFT_UNROLL(8)
      for (index_t r = 0; r < R; ++r) {
        if (s > position + r) continue;
        const vec<C> factor(weights[r][s]);
        dens[r] = mul_add(factor, e, dens[r]);
        nums[r] = mul_add(factor * e, v, nums[r]);
      }
    }
  }
  const vec<C> unit = times_pow2<C>(one, load(slot.references(begin) + c) - load(sums.top + at));
  AFT_UNROLL(8)
  for (index_t r = 0; r < R; ++r) {
    C* const num_row = sums.num + r * sums.width + at;
    C* const den_row = sums.den + r * sums.width + at;
    store(num_row, mul_add(nums[r], unit, load(num_row)));
    store(den_row, mul_add(dens[r], unit, load(den_row)));
  }
}

/// Channels [c, end) of one head for the R rows at `position` and after it, all
/// of one block of positions, which see every key from 0 on: what add_kept
/// computes of each, block by block for all of them, so that a block is read
/// once.
template <class C, index_t R>
AFT_COMPILE_ONCE inline void sum_rows(const slot_arrays<C>& slot, index_t c, index_t end, index_t position,
                                      const row_weights<C>* w, const joint_rows<C>& sums) {
  constexpr index_t L = lanes<C>, block = checks::slot_layout::block;
  const vec<C> zero(C(0)), lowest(-empty_mark<C>);
  for (index_t at = 0; at < end - c; at += L) {
    vec<C> top = lowest;
    for (index_t s = 0; s <= position; s += block) {
      const vec<C> reference = load(slot.references(s) + c + at);
      top = xsimd::select(reference > top, reference, top);
    }
    store(sums.top + at, top);
    for (index_t r = 0; r < R; ++r) {
      store(sums.num + r * sums.width + at, zero);
      store(sums.den + r * sums.width + at, zero);
    }
  }
  for (index_t s = 0; s <= position; s += block)
    for (index_t at = 0; at < end - c; at += L) add_block<C, R>(slot, c + at, at, s, position, w, sums);
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
