// SPDX-License-Identifier: Apache-2.0
/// @file stream/fold.hpp  Positions that have left the window: all weigh e^k,
/// so a sum of them is all that is kept.
///
/// num = sum e^k v and den = sum e^k of a channel are relative to a reference
/// 2^exponent that only rises, when a key stands more than 2^16 above it; den
/// is then 0.7 or more, so that no term which counts is lost. The last
/// positions are summed apart from whole blocks, and beside the sum of those
/// is kept what rounding takes from it: a single sum of 10^6 positions would
/// be off by as many roundings, where this one has a block's. Weights are in
/// the unit of the first key, see first_key, so that sums of equal keys are
/// exact. Keys beyond +-1024 and values beyond 2^+-60 go lane by lane in
/// double, with a reference e^base and values divided by a power of two.
///
/// What a position does depends on the positions before it alone: not on calls,
/// threads or other channels.
#pragma once

#include <cmath>

#include "../math/exp.hpp"
#include "slot.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// A block of the fold ends at multiples of so many positions, and a burst does. Of equal keys each addition rounds in
/// one direction, see scan_tuning::run: blocks of 32 hold the bound less well, for 0.95 of the time of simple in
/// bursts. Beside a window bursts of 32 take 1.09 times as long as those of 64, the block of what is kept (local, 512
/// channels; Emerald Rapids, 2026-12).
template <class C>
inline index_t fold_block(const slot_arrays<C>& slot) {
  return slot.kept() == 0 ? 16 : checks::slot_layout::block;
}

inline constexpr double ln2_hi = exp_constants<double>::ln2_hi, ln2_lo = exp_constants<double>::ln2_lo;

/// The reference of one channel.
struct lane_reference {
  double base = 0, exponent = 0;

  /// One at a key.
  static lane_reference at(double key) {
    if ((std::abs)(key) > near_numbers<double>::key) return {key, 0};
    return {0, std::nearbyint(key * exp_constants<double>::log2e)};
  }
  /// log of e^key relative to it.
  double above(double key) const { return ((key - base) - exponent * ln2_hi) - exponent * ln2_lo; }
  /// The factor that brings a sum from it to another. Rounds to 0 far below.
  double factor_to(const lane_reference& to) const {
    if (base == to.base) return std::ldexp(1.0, static_cast<int>(exponent - to.exponent));
    return std::exp(((base - to.base) + (exponent - to.exponent) * ln2_hi) + (exponent - to.exponent) * ln2_lo);
  }
};

/// One channel of a slot's fold.
template <class C>
class fold_lane {
 public:
  fold_lane(const slot_arrays<C>& slot, index_t c) : slot_(slot), c_(c) {
    const C mark = at(exponent);
    empty_ = mark == empty_mark<C>;
    if (mark == special_mark<C>) {
      reference_ = {static_cast<double>(at(base)), static_cast<double>(at(far_exponent))};
      shift_ = static_cast<int>(at(value_shift));
    } else if (!empty_) {
      reference_.exponent = static_cast<double>(mark);
      unit_ = at(key_unit);
      per_unit_ = at(per_key_unit);
    }
  }

  bool empty() const { return empty_; }
  const lane_reference& reference() const { return reference_; }
  int shift() const { return shift_; }
  C total_num() const { return at(num) + at(rest_num); }
  C total_den() const { return at(den) + at(rest_den); }
  /// What both are to be multiplied by.
  C unit() const { return unit_; }

  /// One more position.
  void add(C key, C value) {
    if (key == -std::numeric_limits<C>::infinity()) return;
    if (empty_) {
      for (index_t i = num; i <= value_shift; ++i) at(i) = C(0);
      empty_ = false;
      if (std::isfinite(key)) begin(key);
    }
    if (!std::isfinite(key)) {
      at(num) = at(den) = std::numeric_limits<C>::quiet_NaN();
      return write_back();
    }
    const double k = static_cast<double>(key);
    if (reference_.above(k) > most_above) {
      const lane_reference higher = lane_reference::at(k);
      const double factor = reference_.factor_to(higher);
      for (const index_t i : fold_sums) at(i) = static_cast<C>(static_cast<double>(at(i)) * factor);
      reference_ = higher;
    }
    if (std::isfinite(value) && value != C(0)) fit((std::abs)(static_cast<double>(value)));
    if (is_special()) forget_unit();
    const double z = reference_.above(k);
    const C term = z < -800 ? C(0) : static_cast<C>(std::exp(z)) * per_unit_;
    at(num) += term * static_cast<C>(std::ldexp(static_cast<double>(value), -shift_));
    at(den) += term;
    write_back();
  }

 private:
  static constexpr double most_above = 11.09;  // 16 ln 2

  C& at(index_t array) const { return slot_.fold(array)[c_]; }
  bool is_special() const { return reference_.base != 0 || shift_ != 0; }

  /// The first key sets the reference and the unit.
  void begin(C key) {
    reference_ = lane_reference::at(static_cast<double>(key));
    if (reference_.base != 0) return;
    C mantissa[lanes<C>];
    store(mantissa, exp_split<C>(vec<C>(key)).mantissa);
    unit_ = mantissa[0];
    per_unit_ = C(1) / unit_;
  }
  void forget_unit() {
    if (unit_ != C(1))
      for (const index_t i : fold_sums) at(i) *= unit_;
    unit_ = per_unit_ = C(1);
  }

  /// Makes room for a value of this size: values are divided by the power of
  /// two of the largest one that was not near.
  void fit(double size) {
    const double scaled = std::ldexp(size, -shift_);
    const bool nothing_yet = at(num) == C(0) && at(rest_num) == C(0);
    if (!(scaled > near_numbers<double>::most || (scaled < near_numbers<double>::least && nothing_yet))) return;
    const bool is_near = size >= near_numbers<double>::least && size <= near_numbers<double>::most;
    const int shift = is_near ? 0 : std::ilogb(size);
    for (const index_t i : {num, rest_num, lost_num})
      at(i) = static_cast<C>(std::ldexp(static_cast<double>(at(i)), shift_ - shift));
    shift_ = shift;
  }

  void write_back() {
    if (!is_special()) {
      at(exponent) = static_cast<C>(reference_.exponent);
      at(key_unit) = unit_;
      at(per_key_unit) = per_unit_;
      return;
    }
    forget_unit();
    at(exponent) = special_mark<C>;
    at(base) = static_cast<C>(reference_.base);
    at(far_exponent) = static_cast<C>(reference_.exponent);
    at(value_shift) = static_cast<C>(shift_);
  }

  const slot_arrays<C>& slot_;
  index_t c_;
  bool empty_ = false;
  lane_reference reference_;
  int shift_ = 0;
  C unit_ = C(1), per_unit_ = unit_;
};

/// A vector of channels of the fold, in registers.
template <class C>
class fold_column {
 public:
  fold_column() = default;
  fold_column(const C* at, index_t step)
      : num_(load(at + num * step)),
        den_(load(at + den * step)),
        rest_num_(load(at + rest_num * step)),
        rest_den_(load(at + rest_den * step)),
        unit_(load(at + key_unit * step)),
        per_unit_(load(at + per_key_unit * step)),
        reference_(load(at)) {}

  vec<C> total_num() const { return num_ + rest_num_; }
  vec<C> total_den() const { return den_ + rest_den_; }
  const vec<C>& reference() const { return reference_; }
  /// What both are to be multiplied by.
  const vec<C>& unit() const { return unit_; }

  /// One more position, whose e^k is a 2^e; the lanes that it went to without
  /// further ado.
  vec_mask<C> add(const vec<C>& a, const vec<C>& e, const vec<C>& key, const vec<C>& value) {
    using bounds = near_numbers<C>;
    const vec<C> zero(C(0)), one(C(1)), few(C(100)), size = (xsimd::abs)(value), up = e - reference_;
    const vec<C> term = times_pow2<C>(a * per_unit_, xsimd::select(up > few, few, up));
    const auto ordinary = ((xsimd::abs)(key) <= vec<C>(bounds::key)) & (a >= vec<C>(bounds::least)) &
                          (a <= vec<C>(bounds::most)) & (up <= few) & (term <= vec<C>(bounds::above)) &
                          (reference_ < vec<C>(empty_mark<C>)) & (size <= vec<C>(bounds::most)) &
                          ((size >= vec<C>(bounds::least)) | (size == zero));
    const vec<C> new_num = mul_add(term, value, num_), new_den = mul_add(term, one, den_);
    if (xsimd::all(ordinary)) {
      num_ = new_num;
      den_ = new_den;
    } else {
      num_ = xsimd::select(ordinary, new_num, num_);
      den_ = xsimd::select(ordinary, new_den, den_);
    }
    return ordinary;
  }
  /// The same for many positions: sums that count only if all lanes were near each time and had begun near. Of a it is
  /// known that it is 2^-60 or more and no more than 2^25.
  AFT_INLINE vec_mask<C> add_near(const vec<C>& a, const vec<C>& e, const vec<C>& value) {
    using bounds = near_numbers<C>;
    const vec<C> size = (xsimd::abs)(value), up = e - reference_, term = times_pow2<C>(a * per_unit_, up);
    num_ = mul_add(term, value, num_);
    den_ = den_ + term;
    // Beyond 2^127 the term may be anything.
    return (up <= vec<C>(C(100))) & (term <= vec<C>(bounds::above)) & (size <= vec<C>(bounds::most_in_burst)) &
           ((size >= vec<C>(bounds::least)) | (size == vec<C>(C(0))));
  }
  /// Whether they begin, and end, so far inside the bounds of a row's proof that sums of a burst stay inside.
  AFT_INLINE vec_mask<C> begins_near() const {
    using bounds = near_numbers<C>;
    return (reference_ < vec<C>(empty_mark<C>)) & (total_den() >= vec<C>(bounds::proof)) &
           ((xsimd::abs)(total_num()) <= vec<C>(bounds::largest_num * C(0.5)));
  }
  AFT_INLINE vec_mask<C> ends_near() const { return total_den() <= vec<C>(near_numbers<C>::largest_den); }
  void write(C* at, index_t step, index_t count) const {
    store_some(at + num * step, num_, count);
    store_some(at + den * step, den_, count);
  }

 private:
  vec<C> num_, den_, rest_num_, rest_den_, unit_, per_unit_, reference_;
};

/// The lanes that a position did not go to.
template <class C>
AFT_COMPILE_ONCE inline void fold_apart(const slot_arrays<C>& slot, index_t c, index_t count,
                                        const vec_mask<C>& ordinary, const vec<C>& key, const vec<C>& value) {
  C apart[lanes<C>], keys[lanes<C>], values[lanes<C>];
  store(apart, xsimd::select(ordinary, vec<C>(C(0)), vec<C>(C(1))));
  store(keys, key);
  store(values, value);
  for (index_t l = 0; l < count; ++l)
    if (apart[l] != C(0)) fold_lane<C>(slot, c + l).add(keys[l], values[l]);
}

/// Adds one position of `count` channels from c on, whose e^k is a 2^e.
template <class C>
AFT_INLINE void fold_position(const slot_arrays<C>& slot, index_t c, index_t count, const vec<C>& a, const vec<C>& e,
                              const vec<C>& key, const vec<C>& value) {
  C* const at = slot.fold(0) + c;
  fold_column<C> column(at, slot.step());
  const auto ordinary = column.add(a, e, key, value);
  column.write(at, slot.step(), count);
  if (!xsimd::all(ordinary)) fold_apart<C>(slot, c, count, ordinary, key, value);
}

/// Before position 0: channels [c0, c1) have seen nothing.
template <class C>
inline void clear_fold(const slot_arrays<C>& slot, index_t c0, index_t c1) {
  for (index_t c = c0; c < c1; ++c) {
    slot.fold(exponent)[c] = empty_mark<C>;
    for (index_t i = num; i <= value_shift; ++i) slot.fold(i)[c] = C(0);
  }
}

/// After a whole block of positions: its sums move on.
template <class C>
AFT_COMPILE_ONCE inline void carry_blocks(const slot_arrays<C>& slot, index_t c0, index_t c1) {
  for (index_t part = 0; part < 2; ++part) {
    C* const last = slot.fold(num + part);
    C* const blocks = slot.fold(rest_num + part);
    C* const lost = slot.fold(lost_num + part);
    for (index_t c = c0; c < c1; ++c) {
      const C a = blocks[c], x = last[c], total = a + x, added = total - a;
      const C left = lost[c] + ((a - (total - added)) + (x - added)), whole = total + left;
      const bool number = (std::abs)(whole) <= exp_constants<C>::largest;
      blocks[c] = number ? whole : total;
      lost[c] = number ? left - (whole - total) : C(0);
      last[c] = C(0);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
