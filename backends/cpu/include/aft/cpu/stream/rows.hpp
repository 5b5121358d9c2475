// SPDX-License-Identifier: Apache-2.0
/// @file stream/rows.hpp  A row's sums over the kept positions and the fold, the proof of them, and its results.
///
/// Blocks of 64 absolute positions are summed apart, position by position, and joined in order with their powers of
/// two, the fold first: an order that no call can change. Whether a lane is proven, or goes by stream/exact.hpp,
/// follows from the same sums.
#pragma once

#include "../math/gates.hpp"
#include "exact.hpp"
#include "kept.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Where a row's results go, each from the row's first channel on; null: not wanted.
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

/// The fold of `M` vectors of channels from c on, and `top` raised to its reference.
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

/// Results of the vector of channels c ... c + count - 1, `at` of them into the row's buffers.
template <class C>
AFT_INLINE void finish_row(const slot_arrays<C>& slot, index_t c, index_t count, const row_weights<C>& w,
                           const joint_sum<C>& sum, index_t at, const row_results<C>& out) {
  using near = near_numbers<C>;
  const vec<C> one(C(1)), zero(C(0));
  vec<C> o = sum.num / sum.den;
  auto proven = (sum.den >= vec<C>(near::proof)) & (sum.den <= vec<C>(near::largest_sum)) &
                ((xsimd::abs)(o) <= vec<C>(exp_constants<C>::largest));
  // The fold alone has lost nothing, whatever its average is.
  if (w.first < w.last) proven = proven & ((xsimd::abs)(o) >= vec<C>(near::smallest_average));
  if (!w.usable) proven = proven & (sum.den < zero);
  C lane_o[lanes<C>], lane_lse[lanes<C>];
  vec<C> log = zero;
  if (out.lse != nullptr) log = log_shifted<C>(xsimd::select(proven, sum.den, one), sum.top + vec<C>(w.shift));
  if (!xsimd::all(proven)) {
    C is_proven[lanes<C>];
    store(is_proven, xsimd::select(proven, one, zero));
    store(lane_o, o);
    store(lane_lse, log);
    finish_apart<C>(slot, c, count, w, is_proven, lane_o, lane_lse);
    o = load(lane_o);
    log = load(lane_lse);
  }
  if (out.lse != nullptr) store_some(out.lse + at, log, count);
  if (out.average != nullptr) store_some(out.average + at, o, count);
  if (out.y == nullptr) return;
  if (out.gate_fn != gate::none) o = o * gate_value<C>(out.gate_fn, load(out.q + at));
  store_some(out.y + at, o, count);
}

/// Channels [c, end) of one head.
template <class C>
AFT_COMPILE_ONCE inline void finish_head(const slot_arrays<C>& slot, index_t c, index_t end, index_t first,
                                         const row_weights<C>& w, const row_results<C>& out) {
  constexpr index_t L = lanes<C>, together = 4;
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

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
