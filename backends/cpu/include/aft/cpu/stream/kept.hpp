// SPDX-License-Identifier: Apache-2.0
/// @file stream/kept.hpp  Positions in reach: e^k formed once when one enters,
/// v and k beside it.
///
/// e^k is divided by a power of two that all positions of a block of 64
/// absolute positions share: a little above that of the block's first key, or
/// where this is no near one that of the block before. A key that does not fit
/// makes e^k of it NaN, and no row that sees it is proven: see stream/rows.hpp.
#pragma once

#include "../math/exp.hpp"
#include "fold.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// A key and a value of `count` channels from c on enter at position p.
template <class C>
AFT_INLINE void keep_position(const slot_arrays<C>& slot, index_t p, index_t place, index_t c, index_t count,
                              const vec<C>& key, const vec<C>& value) {
  using bounds = near_numbers<C>;
  const vec<C> zero(C(0)), nan(std::numeric_limits<C>::quiet_NaN());
  const auto ordinary = (xsimd::abs)(key) <= vec<C>(bounds::key);
  const vec<C> clamped = xsimd::select(ordinary, key, zero);
  const split_exp<C> e = exp_split<C>(clamped);
  C* const kept_reference = slot.references(p) + c;
  vec<C> reference;
  if (p % checks::slot_layout::block == 0) {
    reference =
        xsimd::select(ordinary, e.exponent + vec<C>(bounds::slack), p == 0 ? zero : load(slot.references(p - 1) + c));
    store_some(kept_reference, reference, count);
  } else {
    reference = load(kept_reference);
  }
  const vec<C> most(bounds::above_reference), up = e.exponent - reference;
  const vec<C> inside = xsimd::select(up > most, nan, times_pow2<C>(e.mantissa, xsimd::select(up > most, most, up)));
  const auto hidden = key == vec<C>(-std::numeric_limits<C>::infinity());
  const auto nothing = hidden | ((key < -vec<C>(bounds::key)) & (reference >= vec<C>(bounds::deepest)));
  C* const row = slot.row(place) + c;
  store_some(row, xsimd::select(ordinary, inside, xsimd::select(nothing, zero, nan)), count);
  store_some(row + slot.step(), xsimd::select(hidden, zero, value), count);
  store_some(slot.keys(place) + c, key, count);
}

/// The position at a place goes into the fold.
template <class C>
AFT_INLINE void release_position(const slot_arrays<C>& slot, index_t p, index_t place, index_t c, index_t count) {
  const C* const row = slot.row(place) + c;
  fold_position<C>(slot, c, count, load(row), load(slot.references(p) + c), load(slot.keys(place) + c),
                   load(row + slot.step()));
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
