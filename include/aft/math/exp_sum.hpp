// SPDX-License-Identifier: Apache-2.0
/// @file exp_sum.hpp  The value that every operator folds its keys into, and the operation that joins two of them.
///
/// A row sees the logits x_s = k[b,s,c] + w[t,s]. Any set of its keys is the triple
///     max = max_s x_s,   num = sum_s exp(x_s - max) v[b,s,c],   den = sum_s exp(x_s - max),
/// and disjoint sets merge in any grouping, which is what allows prefixes, windows, tiles and threads: flash attention
/// calls the same thing online softmax. All terms of den are positive and its largest is 1, so that it neither
/// overflows nor vanishes, and a merge never subtracts (docs/adr/0001-one-algebra.md).
///
/// The backends keep num and den of many rows in vectors or registers and take a power of two or a bound of x_s for
/// max; the value that the triple stands for, num e^max and den e^max, is the same. Where one max holds for all sums of
/// a row, as in the tiles, windows and filters of the CPU, they are weighted_sum. The scan of the CPU has two units,
/// one for num and one for den: values of extreme size take a power of two of their own, without which num would
/// overflow or vanish where den does not.
#pragma once

#include <cmath>
#include <limits>

namespace aft {

/// num and den in a unit that is known from elsewhere: sums over disjoint keys in one unit merge by addition. T may be
/// a vector; transposed, num and den are the two sums that dv and dk follow from.
template <class T>
struct weighted_sum {
  T num;
  T den;
};
template <class T>
[[gnu::always_inline]] constexpr weighted_sum<T> operator+(const weighted_sum<T>& a, const weighted_sum<T>& b) {
  return {a.num + b.num, a.den + b.den};
}

/// num and den in units of e^max. An aggregate without initial values: T may be a vector, and the unit 2^max.
template <class T>
struct exp_sum {
  T max;
  T num;
  T den;
};

/// The sum over no keys, neutral in merge().
template <class T>
[[gnu::always_inline]] constexpr exp_sum<T> empty_exp_sum() {
  return {-std::numeric_limits<T>::infinity(), T(0), T(0)};
}

/// Both sums in units of e^max, where a_unit = e^(a.max - max) and b_unit = e^(b.max - max). The form for types whose
/// maximum and exponential the caller has: vectors, powers of two.
template <class T>
[[gnu::always_inline]] constexpr exp_sum<T> merge(const exp_sum<T>& a, const T& a_unit, const exp_sum<T>& b,
                                                  const T& b_unit, const T& max) {
  return {max, a.num * a_unit + b.num * b_unit, a.den * a_unit + b.den * b_unit};
}

/// The sum over the keys of both.
template <class T>
[[gnu::always_inline]] inline exp_sum<T> merge(const exp_sum<T>& a, const exp_sum<T>& b) {
  // The unit of a sum over nothing is 0; as a power it would be -inf - -inf, which is NaN.
  if (b.den == T(0)) return a;
  if (a.den == T(0)) return b;
  const T max = a.max < b.max ? b.max : a.max;
  return merge(a, T(std::exp(a.max - max)), b, T(std::exp(b.max - max)), max);
}

/// sum_s a[t,s,c] v[b,s,c] with a = exp(x_s) / sum exp(x): AFT Eq. 2 before the gate; 0 where no key is seen.
template <class T>
[[gnu::always_inline]] constexpr T average_of(const exp_sum<T>& sum) {
  return sum.den == T(0) ? T(0) : sum.num / sum.den;
}

/// log sum_s exp(x_s); -inf where no key is seen.
template <class T>
[[gnu::always_inline]] inline T lse_of(const exp_sum<T>& sum) {
  return sum.den == T(0) ? -std::numeric_limits<T>::infinity() : sum.max + T(std::log(sum.den));
}

}  // namespace aft
