// SPDX-License-Identifier: Apache-2.0
/// @file stream/slot.hpp  A slot's numbers: where the kernels find what
/// checks/stream.hpp has looked at.
#pragma once

#include <aft/core/problem/problem.hpp>

#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// Bounds within which keys, values and sums are near: beyond them a lane goes
/// the long way.
///
/// A row loses weights e^w below 2^-126 of its largest, beside an e^k of up to
/// 2^above_reference, and e^k below 2^-126: of 2^16 positions together less
/// than 2^-86. Beside a den of 2^-56 or more that is below a 30th of a float's
/// last place. In double there is room enough for the same bounds.
template <class C>
struct near_numbers {
  static constexpr C key = C(1024);  ///< |k| whose exponential has a whole power of two
  static constexpr C least = C(0x1p-60), most = C(0x1p60);
  static constexpr C most_in_burst = C(0x1p46);  ///< a value that 64 rows of keep num within half its bound
  static constexpr C above = C(0x1p16);          ///< how far a term may stand above the reference of the fold
  static constexpr C slack = C(16);              ///< powers of two that a block's reference
                                                 ///< is set above its first key
  static constexpr C above_reference = C(24);    ///< and those that a key may stand above that
  static constexpr C deepest = C(-377);          ///< references from which on keys below
                                                 ///< -1024 are nothing, in double too
  static constexpr C smallest_average = sizeof(C) == 4 ? C(0x1p-40) : C(0x1p-400);
  static constexpr C proof = C(0x1p-56), largest_den = C(0x1p75), largest_num = C(0x1p70);
};

/// Arrays of the fold, d channels each.
enum fold_array : index_t {
  exponent,  ///< of the reference; or one of the marks below
  num,
  den,  ///< of the last positions
  rest_num,
  rest_den,  ///< of all positions before those
  key_unit,
  per_key_unit,  ///< the mantissa of the first key's weight, by whose inverse all are multiplied: see first_key
  lost_num,
  lost_den,  ///< what rounding took from those of all before
  value_shift,
  base = key_unit,
  far_exponent = per_key_unit  ///< these, too, of a reference that `special` marks; its weights have no unit
};
/// Arrays that hold sums.
inline constexpr fold_array fold_sums[] = {num, den, rest_num, rest_den, lost_num, lost_den};
/// No position has come; the other arrays hold anything.
template <class C>
inline constexpr C empty_mark = C(0x1p20);
/// The reference is e^base 2^far_exponent, and values are divided by
/// 2^value_shift.
template <class C>
inline constexpr C special_mark = C(0x1p21);

template <class C>
class slot_arrays {
 public:
  slot_arrays(const stream_ref& s, index_t slot)
      : layout_(s.spec.layout()),
        first_(reinterpret_cast<C*>(s.data + slot * layout_.bytes() + checks::slot_layout::header_bytes)) {}

  index_t kept() const { return layout_.kept; }
  bool folds() const { return layout_.fold > 0; }
  C* fold(index_t array) const { return first_ + array * layout_.channels; }
  /// e^k of all channels, and `step()` behind it v, of the position at place i.
  C* row(index_t i) const { return first_ + layout_.rows_at() + 2 * i * layout_.channels; }
  index_t step() const { return layout_.channels; }
  C* keys(index_t i) const { return first_ + layout_.keys_at() + i * layout_.channels; }
  /// The power of two that e^k of a position is divided by.
  C* references(index_t position) const {
    return first_ + layout_.references_at() + position / checks::slot_layout::block % layout_.blocks * layout_.channels;
  }

 private:
  checks::slot_layout layout_;
  C* first_;
};

/// Of a vector the first `count` lanes, which other threads' channels may
/// follow.
template <class C>
AFT_INLINE void store_some(C* p, const vec<C>& x, index_t count) {
  if (count == lanes<C>) return store(p, x);
  C all[lanes<C>];
  store(all, x);
  for (index_t l = 0; l < count; ++l) p[l] = all[l];
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
