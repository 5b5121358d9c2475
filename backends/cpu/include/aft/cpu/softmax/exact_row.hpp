// SPDX-License-Identifier: Apache-2.0
/// @file softmax/exact_row.hpp  One row by the definition, whichever engine walks its keys: the joint maximum, the
/// terms relative to it, and what becomes of their sums.
#pragma once

#include "../math/half_sum.hpp"
#include "../math/power_of_two.hpp"
#include "row_state.hpp"
#include "sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
struct exact_row_result {
  C average[lanes<C>];  ///< num / den * inverse_scale
  C num[lanes<C>];
  C den[lanes<C>];
  C inverse_scale[lanes<C>];
  C lse[lanes<C>];
  C inverse[lanes<C>];
  C exponent[lanes<C>];
  C base_hi[lanes<C>];
  C base_lo[lanes<C>];
};

/// exp(w), exp(k) and exp(k) v of one pair in the units of its row.
template <class C>
struct exact_term {
  vec<C> factor = vec<C>(C(0)), mass = factor, weighted = factor;
};

/// A row's units. Every key is shown to see() first, and after settle() each one has its term; the engine adds those in
/// its own order, which is part of the bits. Exponents are kept apart, so that as long as no logit lies beyond
/// exp_constants::range a term's mantissa is that of the fast path.
template <class C>
class exact_row_units {
 public:
  void see(const vec<C>& key, const vec<C>& weight, const vec<C>& value, const vec_mask<C>& seen) {
    const vec<C> one(C(1)), inf(std::numeric_limits<C>::infinity()), size = (xsimd::abs)(value);
    // A NaN fails every comparison, so "not within" also catches it.
    const auto within = within_range(key) && within_range(weight);
    const half_sum<C> z = add_halves<C>(key, weight);
    const auto ordinary = (xsimd::abs)(z.hi) < inf;
    near_ = xsimd::select(seen && within && (z.hi > near_), z.hi, near_);
    far_ = xsimd::select(seen && ordinary && !within && (z.hi > far_), z.hi, far_);
    tainted_ = xsimd::select(seen && !ordinary, one, tainted_);
    const auto higher = seen && ordinary && ((z.hi > start_hi_) || ((z.hi == start_hi_) && (z.lo > start_lo_)));
    start_hi_ = xsimd::select(higher, z.hi, start_hi_);
    start_lo_ = xsimd::select(higher, z.lo, start_lo_);
    const vec<C> e = exponent_of<C>(key) + exponent_of<C>(weight);
    top_ = xsimd::select(seen && within && (e > top_), e, top_);
    largest_ = xsimd::select(seen && (size < inf) && (size > largest_), size, largest_);
  }

  /// `guard` bits below 1 are where den starts: 2^guard terms do not overflow.
  void settle(index_t guard = 0) {
    const vec<C> zero(C(0)), none(-std::numeric_limits<C>::infinity());
    C largest[lanes<C>], scale[lanes<C>], inverse_scale[lanes<C>];
    store(largest, largest_);
    // A power of two that takes max |v| near 1; clamped, since 2^-e must be a normal number both ways.
    for (index_t l = 0; l < lanes<C>; ++l) value_scale(largest[l], scale[l], inverse_scale[l]);
    scale_ = load(scale);
    inverse_scale_ = load(inverse_scale);
    top_ = xsimd::select(top_ > none, top_, zero);
    start_hi_ = xsimd::select(start_hi_ > none, start_hi_, zero);
    guard_ = vec<C>(static_cast<C>(guard));
    // Pairs beyond the range that lie far below the others have weight 0, as on the fast path: which path a lane takes
    // depends on its neighbours, and so must not show in its bits.
    const vec<C> nothing(sizeof(C) == 4 ? C(200) : C(2000));
    distant_ = xsimd::select((far_ > none) && !(near_ - far_ > nothing), vec<C>(C(1)), zero);
  }

  /// Where the fast path has units for keys and weights besides, see first_key, so has this. Terms get
  /// theirs one by one, as those of bias 0 may be without.
  void divide(const vec<C>& key_unit, const vec<C>& weight_unit) {
    const vec<C> one(C(1));
    per_key_ = one / key_unit;
    per_weight_ = xsimd::select(is_distant(), one, one / weight_unit);
    unit_ = xsimd::select(is_distant(), one, key_unit * weight_unit);
  }
  const vec<C>& per_weight() const { return per_weight_; }

  exact_term<C> term(const vec<C>& key, const vec<C>& weight, const vec<C>& v, const vec_mask<C>& seen,
                     const vec<C>& per_weight = vec<C>(C(1))) const {
    const vec<C> zero(C(0));
    const split_exp<C> ek = exp_weight_whole<C>(xsimd::select(within_range(key), key, zero));
    const split_exp<C> ew = exp_weight_whole<C>(xsimd::select(within_range(weight), weight, zero));
    exact_term<C> x;
    x.factor = ew.mantissa * per_weight;
    x.mass = (ek.mantissa * per_key_) * pow2<C>(((ek.exponent + ew.exponent) - top_) - guard_);
    const auto within = within_range(key) && within_range(weight);
    x.mass = xsimd::select(within, x.mass, zero);
    if (const auto distant = is_distant(); xsimd::any(distant)) {
      const half_sum<C> z = add_halves<C>(key, weight);
      const vec<C> logit = vec<C>(C(2)) * ((z.hi - start_hi_) + (z.lo - start_lo_));
      x.mass = xsimd::select(distant, exp_scaled<C>(logit, guard_), x.mass);
      x.factor = xsimd::select(distant, vec<C>(C(1)), x.factor);
    }
    x.mass = xsimd::select(seen, x.mass, zero);
    // Chosen last: a product that met the engine's sum here might be fused with it, and have other bits than the fast
    // path.
    x.weighted = xsimd::select(seen, x.mass * (v * scale_), zero);
    return x;
  }
  /// A value in the row's units. That of a hidden pair may be anything.
  vec<C> scaled(const vec<C>& v, const vec_mask<C>& seen) const {
    return xsimd::select(seen, v * scale_, vec<C>(C(0)));
  }

  void result(const vec_sum<C>& sum, exact_row_result<C>& out) const {
    const vec<C> zero(C(0)), one(C(1)), inf(std::numeric_limits<C>::infinity());
    // NaN or +inf among what the row sees must come out as NaN, whatever the comparisons made of it.
    const vec<C> den = xsimd::select(tainted_ > zero, vec<C>(std::numeric_limits<C>::quiet_NaN()), sum.den);
    const auto empty = den == zero, number = den == den, distant = is_distant();
    const vec<C> safe = xsimd::select(empty, one, den), ratio = sum.num / safe, whole = safe * unit_;
    // The average lies in the hull of the values; only where rounding carries it past the largest number is it put back
    // there, so that elsewhere the bits remain those of the fast path.
    const vec<C> average = ratio * inverse_scale_, size = largest_ * scale_;
    const auto over = ((xsimd::abs)(average) == inf) && ((xsimd::abs)(ratio) < inf);
    const vec<C> hull = xsimd::select(ratio > zero, size, -size);
    const vec<C> exponent = xsimd::select(distant, guard_, top_ + guard_);
    const vec<C> base_hi = xsimd::select(distant, start_hi_, zero), base_lo = xsimd::select(distant, start_lo_, zero);
    const vec<C> lse = xsimd::select(number, log_from_base<C>({base_hi, base_lo}, whole, exponent), den);
    const split_exp<C> parts = split_number<C>(whole);
    store(out.average, xsimd::select(empty, zero, xsimd::select(over, hull * inverse_scale_, average)));
    store(out.num, xsimd::select(over, hull, sum.num));
    store(out.den, xsimd::select(over, one, safe));
    store(out.inverse_scale, inverse_scale_);
    store(out.lse, xsimd::select(empty, -inf, lse));
    store(out.inverse, xsimd::select(empty, zero, xsimd::select(number, one / parts.mantissa, den)));
    store(out.exponent, exponent + parts.exponent);
    store(out.base_hi, base_hi);
    store(out.base_lo, base_lo);
  }

 private:
  static vec_mask<C> within_range(const vec<C>& x) { return (xsimd::abs)(x) <= vec<C>(exp_constants<C>::range); }
  /// Lanes whose reference is a logit, not a power of two.
  vec_mask<C> is_distant() const { return distant_ > vec<C>(C(0)); }

  vec<C> top_ = vec<C>(-std::numeric_limits<C>::infinity());  ///< the largest exponent of k + w
  vec<C> start_hi_ = top_;                                    ///< the largest logit, halved, for lanes beyond the range
  vec<C> start_lo_ = vec<C>(C(0));
  vec<C> largest_ = start_lo_;  ///< finite |v|
  vec<C> tainted_ = start_lo_;  ///< some logit is NaN or +inf
  vec<C> near_ = top_;          ///< the largest logit, halved, of pairs within exp_constants::range
  vec<C> far_ = top_;           ///< of those beyond it
  vec<C> distant_ = start_lo_;
  vec<C> scale_ = start_lo_, inverse_scale_ = start_lo_, guard_ = start_lo_;
  vec<C> per_key_ = vec<C>(C(1)), per_weight_ = per_key_, unit_ = per_key_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
