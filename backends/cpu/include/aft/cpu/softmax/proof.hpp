// SPDX-License-Identifier: Apache-2.0
/// @file softmax/proof.hpp  Whether sums of weights have lost nothing that counts: the proof check of docs/adr/0002.
#pragma once

#include "../math/exp_weight.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Of a gradient, terms below 2^-125 were dropped before the scales of keys, rows and taps multiply their sum: a power
/// of two up to this keeps what is lost below 2^-60 of max |g|.
template <class C>
inline constexpr C most_scale = sizeof(C) == 4 ? C(40) : C(400);

/// Beyond most_scale and up to this, sums prove themselves: see kept_sum.
template <class C>
inline constexpr C furthest_scale = sizeof(C) == 4 ? C(120) : C(1000);

/// A sum of so many terms, of which each lost at most 2^-125 (2^-1021): from this size on the sum has kept all but
/// 2^-28 (2^-57) of itself, whatever multiplies it. A filter that has learned to look at one tap alone leaves rows at
/// the border, which do not see it, so far below the others that most_scale holds for few keys, and their sums tell.
template <class C>
inline vec<C> kept_sum(index_t terms) {
  return vec<C>(static_cast<C>(terms) * (sizeof(C) == 4 ? C(0x1p-97) : C(0x1p-964)));
}

/// Below it the power of two comes last, see scaled_factor.
template <class C>
inline constexpr C least_scale = sizeof(C) == 4 ? C(-60) : C(-800);

/// exp(x) beside the scales of what it is multiplied with: exp(x) 2^exponents = mantissa 2^scale.
template <class C>
struct scaled_factor {
  vec<C> mantissa, scale, factor;
  vec_mask<C> within;   ///< x lies in the given range, and the scale where a product with it loses nothing
  vec_mask<C> reaches;  ///< x does, and the scale where a sum may show that it has lost nothing

  scaled_factor(const vec<C>& x, const vec<C>& exponents, C range) {
    const vec<C> furthest(furthest_scale<C>);
    within = (xsimd::abs)(x) <= vec<C>(range);
    const split_exp<C> e = exp_weight_whole<C>(xsimd::select(within, x, vec<C>(C(0))));
    mantissa = e.mantissa;
    scale = e.exponent + exponents;
    factor = mantissa * pow2<C>(xsimd::select(scale > furthest, furthest, scale));
    reaches = within && (scale <= furthest);
    within = within && (scale <= vec<C>(most_scale<C>));
  }
  /// A product with a sum of this size, of which what kept_sum says is enough, loses nothing.
  vec_mask<C> keeps(const vec<C>& size, const vec<C>& enough) const { return within || (reaches && (size >= enough)); }
  /// The same in lanes that lost more, by a factor.
  vec_mask<C> keeps(const vec<C>& size, const vec<C>& enough, const vec<C>& lost) const {
    const auto as_ever = lost == vec<C>(C(1));
    return (within && as_ever) || (reaches && (size >= enough * lost));
  }
  /// mantissa 2^scale x a b, where a and b are powers of two. That of the factor comes last where alone it would
  /// underflow, though with theirs the result need not.
  vec<C> times(const vec<C>& x, const vec<C>& a, const vec<C>& b) const {
    const vec<C> product = (factor * x) * a * b;
    const auto deep = scale < vec<C>(least_scale<C>);
    return xsimd::any(deep) ? xsimd::select(deep, raise<C>((mantissa * x) * a * b, scale), product) : product;
  }
};

template <class C>
inline vec_mask<C> is_finite(const vec<C>& x) {
  return (xsimd::abs)(x) <= vec<C>(exp_constants<C>::largest);
}

/// Underflowed terms change num / den by at most T 2^-125 / den, relative to max |v|; above the bounds that is far
/// below an ulp. NaN and infinities fail the comparisons.
template <class C>
inline vec_mask<C> proven_average(const vec<C>& num, const vec<C>& den, const vec<C>& o, const vec<C>& floor) {
  const vec<C> enough(exp_constants<C>::proof), largest(exp_constants<C>::largest);
  return (den >= enough) && (den <= largest) && ((xsimd::abs)(o) <= largest) && ((xsimd::abs)(num) >= floor * den);
}

/// The same for many rows at once, lane by lane.
template <class C>
class proof_of_rows {
 public:
  explicit proof_of_rows(const vec<C>& floor) : floor_(floor), above_(floor == floor) {
    with_floor_ = !xsimd::all(floor == vec<C>(C(0)));
  }
  void add(const vec<C>& num, const vec<C>& den, const vec<C>& o) {
    dens_.add(den);
    averages_.add(o);
    if (with_floor_) above_ = above_ && ((xsimd::abs)(num) >= floor_ * den);
  }
  vec_mask<C> proven() const {
    using k_ = exp_constants<C>;
    return dens_.within(k_::proof, k_::largest) && averages_.within(k_::largest) && above_;
  }

 private:
  vec<C> floor_;
  vec_mask<C> above_;
  seen_range<C> dens_;
  seen_size<C> averages_;
  bool with_floor_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
