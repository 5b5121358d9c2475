// SPDX-License-Identifier: Apache-2.0
/// @file stream/row_sum.cuh  The sums of one row over kept positions, in blocks of 64 absolute positions.
#pragma once

#include "../fold/epilogue.cuh"
#include "../math/exp_sum.cuh"
#include "../tensor/weights.cuh"
#include "slot_fold.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Positions that are summed before they merge the rest: 10^5 of them are 1600 merges of 64 terms, where one sum would
/// round 10^5 times.
inline constexpr index_t kept_block = checks::slot_layout::block;

/// Four keep the registers of double below 255, with 256 threads a block. Not measured.
inline constexpr int reads_ahead = 4;

/// A row at an absolute position, of one channel of an element.
template <class C>
struct stream_row {
  index_t element, head, position;
  index_t first;  ///< of the kept positions that it sees

  /// Calls f(mantissa of e^k, v, k, w) for the positions of a block that the row sees, in their order. `ahead` of
  /// them are read before the first is used, so that their memory answers together.
  template <int ahead, class F>
  AFT_DEVICE void each_of_block(const device_call<C>& p, const kept_keys<C>& kept, index_t block, const F& f) const {
    const index_t begin = max_of(block * kept_block, first);
    const index_t last = min_of((block + 1) * kept_block - 1, position);
    // No more than `kept` positions are seen, so that a place wraps once at most.
    const index_t place = begin % kept.kept;
    for (index_t s0 = begin; s0 <= last; s0 += ahead) {
      C mantissas[ahead], values[ahead], keys[ahead], biases[ahead];
      AFT_DEVICE_UNROLL
      for (int i = 0; i < ahead; ++i) {
        const index_t s = min_of(s0 + i, last);
        const index_t at = place + (s - begin);
        const C* const from = kept.at_place(at < kept.kept ? at : at - kept.kept);
        mantissas[i] = from[0];
        values[i] = from[kept.step];
        keys[i] = from[2 * kept.step];
        biases[i] = visible_weight(p, element, head, position, s);
      }
      AFT_DEVICE_UNROLL
      for (int i = 0; i < ahead; ++i) {
        if (s0 + i > last || keys[i] == -number<C>::infinity || biases[i] == -number<C>::infinity) continue;
        f(mantissas[i], values[i], keys[i], biases[i]);
      }
    }
  }
};

/// A logit beyond the range makes the sums NaN, so that they are not proven.
template <class C>
AFT_DEVICE key_sum<C> sum_of_block(const device_call<C>& p, const stream_row<C>& row, const kept_keys<C>& kept,
                                   index_t block) {
  key_sum<C> sum;
  row.template each_of_block<reads_ahead>(p, kept, block, [&](C mantissa, C value, C key, C w) {
    const split_exp<C> weight = stage_logit(w);
    // exp_split's own, of which the mantissa is kept.
    const C key_exponent = fused(key, number<C>::log2e, number<C>::magic) - number<C>::magic;
    const C exponent = key_exponent + weight.exponent;
    const C top = larger(sum.max, exponent);
    const C scale = pow2<C>(sum.max - top);
    const C factor = mantissa * weight.mantissa * pow2<C>(exponent - top);
    sum.num = fused(sum.num, scale, factor * value);
    sum.den = fused(sum.den, scale, factor);
    sum.largest = larger(sum.largest, magnitude(value));
    sum.max = top;
  });
  return sum;
}

template <class C>
AFT_DEVICE row_result<C> result_of_sum(const key_sum<C>& sum) {
  row_result<C> result;
  result.average = average_of(sum);
  result.den = sum.den;
  result.exponent = sum.max;
  return result;
}

/// The row by the definition: the largest k + w of what it sees, the fold counting as a key, and the terms relative to
/// it. O(reach); for rows that are not proven, or whose fold has other units.
template <class C>
AFT_DEVICE row_result<C> exact_stream_row(const device_call<C>& p, const stream_row<C>& row, const kept_keys<C>& kept,
                                          const slot_fold<C>& fold) {
  half_sum<C> top{-number<C>::infinity, C(0)};
  C largest = C(0);
  bool tainted = false;
  const auto see = [&](const half_sum<C>& z, C size) {
    tainted = tainted || !is_finite(z.hi);
    if (z.hi > top.hi || (z.hi == top.hi && z.lo > top.lo)) top = z;
    if (is_finite(size)) largest = larger(largest, size);
  };
  const index_t first_block = row.first / kept_block, last_block = row.position / kept_block;
  for (index_t block = first_block; block <= last_block; ++block)
    row.template each_of_block<1>(p, kept, block,
                                  [&](C, C value, C key, C w) { see(add_halves<C>(key, w), magnitude(value)); });
  const half_sum<C> of_fold = fold.half_unit();
  const C fold_den = fold.total_den();
  if (!fold.empty()) {
    tainted = tainted || !is_finite(fold_den);
    see(of_fold, magnitude(fold.average()));
  }
  row_result<C> result;
  if (tainted) {
    result.average = result.den = number<C>::nan;
    return result;
  }
  const C lift = value_exponent(largest);
  const C scale = pow2<C>(-lift);
  const auto above = [&](const half_sum<C>& z) {
    return exp_scaled<C>(C(2) * ((z.hi - top.hi) + (z.lo - top.lo)), C(0));
  };
  C num = C(0), den = C(0);
  if (!fold.empty()) {
    const C factor = above(of_fold);
    num = factor * times_power(fold.total_num(), fold.lift - lift);
    den = factor * fold_den;
  }
  for (index_t block = first_block; block <= last_block; ++block) {
    C part_num = C(0), part_den = C(0);
    row.template each_of_block<1>(p, kept, block, [&](C, C value, C key, C w) {
      const C factor = above(add_halves<C>(key, w));
      part_num = fused(factor, value * scale, part_num);
      part_den += factor;
    });
    num += part_num;
    den += part_den;
  }
  if (den == C(0)) return result;
  const C ratio = num / den;
  C average = times_power(ratio, lift);
  if (is_finite(ratio) && !is_finite(average)) average = ratio > C(0) ? largest : -largest;
  result.average = average;
  result.den = den;
  result.base_hi = top.hi;
  result.base_lo = top.lo;
  return result;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
