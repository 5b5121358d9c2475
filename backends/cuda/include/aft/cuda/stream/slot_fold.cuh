// SPDX-License-Identifier: Apache-2.0
/// @file stream/slot_fold.cuh  Positions that have left the window: all weigh e^k, so a sum of them is all that a slot
/// keeps, whatever their number and size.
///
/// No row may come back to a position that was folded, so there is no exact path for what a fold would lose: it loses
/// nothing. num and den are in units of e^base 2^exponent, and num of 2^lift besides. The exponent is that of the
/// largest weight so far and changes by powers of two, which do not round. base is 0 until keys are further than 4096
/// from it; then it is such a key, and the sums round once for it, which happens once in 4096 that keys rise.
///
/// The last positions are summed apart from whole blocks of 128 and those from blocks of blocks: a sum of 10^6 terms
/// would be off by as many roundings, this one by three times 128. What a position does depends on those before it
/// alone, so not on where calls were cut.
#pragma once

#include "../fold/epilogue.cuh"
#include "slot.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// x 2^j for integral j, where a single power of two would leave the range.
template <class C>
AFT_DEVICE C times_power(C x, C j) {
  constexpr C most = number<C>::bias - C(1);
  const C clipped = j < -2 * most ? -2 * most : (j > 2 * most ? 2 * most : j);
  const C half = clipped < -most ? -most : (clipped > most ? most : clipped);
  return x * pow2<C>(half) * pow2<C>(clipped - half);
}

template <class C>
struct slot_fold {
  static constexpr int levels = 3;
  static constexpr index_t block = 128;
  /// Values within these bounds are summed as they are: 2^66 of the largest do not overflow, and products with weights
  /// that count do not leave the normal numbers.
  static constexpr C least = C(0x1p-60), most = C(0x1p60);

  C base = C(0), exponent = no_exponent<C>, lift = C(0);
  C num[levels] = {C(0), C(0), C(0)};
  C den[levels] = {C(0), C(0), C(0)};

  /// Of channel c; of a slot at position 0, whose arrays hold anything, there is nothing to read.
  AFT_DEVICE void read(const std::byte* slot, index_t channels, index_t c) {
    const C* const from = reinterpret_cast<const C*>(slot + checks::slot_layout::header_bytes) + c;
    base = from[0];
    exponent = from[channels];
    lift = from[2 * channels];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < levels; ++i) {
      num[i] = from[(3 + 2 * i) * channels];
      den[i] = from[(4 + 2 * i) * channels];
    }
  }
  AFT_DEVICE void write(std::byte* slot, index_t channels, index_t c) const {
    C* const to = reinterpret_cast<C*>(slot + checks::slot_layout::header_bytes) + c;
    to[0] = base;
    to[channels] = exponent;
    to[2 * channels] = lift;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < levels; ++i) {
      to[(3 + 2 * i) * channels] = num[i];
      to[(4 + 2 * i) * channels] = den[i];
    }
  }

  AFT_DEVICE bool empty() const { return exponent == no_exponent<C>; }
  /// Units that a row's sums can have too.
  AFT_DEVICE bool is_plain() const { return base == C(0) && lift == C(0); }
  AFT_DEVICE C total_num() const { return num[0] + (num[1] + num[2]); }
  AFT_DEVICE C total_den() const { return den[0] + (den[1] + den[2]); }
  /// Half of base + exponent ln 2.
  AFT_DEVICE half_sum<C> half_unit() const {
    half_sum<C> z = add_halves<C>(base, exponent * number<C>::ln2_hi);
    z.lo = fused(exponent, number<C>::ln2_lo * C(0.5), z.lo);
    return z;
  }
  AFT_DEVICE C average() const {
    const C ratio = total_num() / total_den();
    const C lifted = times_power(ratio, lift);
    // It lies in the hull of the values; only rounding could carry it past the largest number.
    if (is_finite(ratio) && !is_finite(lifted)) return ratio > C(0) ? number<C>::largest : -number<C>::largest;
    return lifted;
  }

  /// One more position, the `count`-th of all.
  AFT_DEVICE void add(C key, C value, index_t count) {
    if (key != -number<C>::infinity) add_seen(key, value);
    if (count % block != 0) return;
    AFT_DEVICE_UNROLL
    for (int i = 0; i + 1 < levels; ++i) {
      if (i == 1 && count % (block * block) != 0) return;
      num[i + 1] += num[i];
      den[i + 1] += den[i];
      num[i] = den[i] = C(0);
    }
  }

 private:
  AFT_DEVICE void scale(C num_factor, C den_factor) {
    AFT_DEVICE_UNROLL
    for (int i = 0; i < levels; ++i) {
      num[i] *= num_factor;
      den[i] *= den_factor;
    }
  }

  /// Makes `key` the base, unless it is too far below the sums to add to them.
  AFT_DEVICE bool rebase(C key) {
    constexpr C lost = C(800);  // e^-800 is 0 in double too
    const C above = fused(exponent, number<C>::ln2_lo, fused(exponent, number<C>::ln2_hi, base - key));
    if (above > lost) return false;
    const split_exp<C> factor = exp_split<C>(above < -number<C>::range ? C(0) : above);
    const C mantissa = above < -number<C>::range ? C(0) : factor.mantissa;
    scale(mantissa, mantissa);
    exponent = factor.exponent;
    base = key;
    return true;
  }

  /// Values are divided by the power of two of one that was not within the bounds, until a larger one asks for more.
  AFT_DEVICE void fit(C size) {
    const C scaled = lift == C(0) ? size : times_power(size, -lift);
    const bool nothing_yet = num[0] == C(0) && num[1] == C(0) && num[2] == C(0);
    if (!(scaled > most || (scaled < least && nothing_yet))) return;
    const C wanted = size >= least && size <= most ? C(0) : value_exponent(size);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < levels; ++i) num[i] = times_power(num[i], lift - wanted);
    lift = wanted;
  }

  AFT_DEVICE void add_seen(C key, C value) {
    if (!is_finite(key)) {
      if (empty()) exponent = C(0);
      num[0] = den[0] = number<C>::nan;
      return;
    }
    if (empty()) base = magnitude(key) <= number<C>::range ? C(0) : key;
    if (magnitude(key - base) > number<C>::range && !rebase(key)) {
      if (!is_finite(value)) num[0] = number<C>::nan;
      return;
    }
    const split_exp<C> weight = exp_split<C>(key - base);
    if (weight.exponent > exponent) {
      const C factor = pow2<C>(exponent - weight.exponent);
      scale(factor, factor);
      exponent = weight.exponent;
    }
    if (is_finite(value) && value != C(0)) fit(magnitude(value));
    const C factor = weight.mantissa * pow2<C>(weight.exponent - exponent);
    num[0] = fused(factor, lift == C(0) ? value : times_power(value, -lift), num[0]);
    den[0] += factor;
  }
};

/// A row that sees what the fold holds and nothing else.
template <class C>
AFT_DEVICE row_result<C> result_of_fold(const slot_fold<C>& fold) {
  row_result<C> result;
  if (fold.empty()) return result;
  result.den = fold.total_den();
  result.average = fold.average();
  result.exponent = fold.exponent;
  result.base_hi = fold.base * C(0.5);
  return result;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
