// SPDX-License-Identifier: Apache-2.0
/// @file tolerance.hpp  How far a result may be from the oracle. The one place where this is decided; no test picks a
/// number of its own.
///
/// The contract: against a long-double evaluation the error is at most 3 times that of the obvious loop in the same
/// precision, plus 8 units in the last place of max|v|. Both are taken per element relative to a `scale`, the size of
/// the numbers behind that element:
///
///   |got - oracle| <= scale * 3 max_j(|naive_j - oracle_j| / scale_j) + 8 ulp(scale) + storage rounding
///
/// - average: scale = the largest |v| that the row sees. Not that of the whole tensor: a hidden or future value of
///   1e38 must not buy anything.
/// - y: that times max(1, |gate(q)|), since relu, silu and identity grow with q.
/// - lse: scale = max(1, |lse|) over the tensor, for lse is a sum of the row's maximum and a logarithm, and k and w may
///   cancel in it.
/// - gradients: every element is a sum whose terms may cancel. Its scale is one number per tensor, the larger of two:
///   the largest, over the elements, sum of absolute values of the terms, which the oracle returns (gradients::terms);
///   and the most that a row hands out over all its keys (row_dv, row_dx), for a row's weights add up to 1 and are
///   rounded against that, also where the weights that this tensor gets are tiny ones. So a count of terms enters only
///   where so many terms of that size really exist.
/// - gradients of denormal size: each term rounds to a multiple of the least number, so 8 of those per term join.
/// - an element that no term was added to, such as the gradient of a hidden pair, is 0 exactly; so is an average of
/// zeros, unless a NaN multiplies it.
///
/// ulp and the naive loop are those of the arithmetic type; half and bfloat16 add half a unit of their own for storing.
/// Where the naive loop overflows although the formula's value is finite its error says nothing and is left out.
#pragma once

#include <aft/core/numeric.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace aft::test {

/// What rounding to a type costs: digits of the significand, and exponents of the least and the largest values.
struct precision {
  int digits;
  int min_exponent;  ///< of the least normal number, as ilogb counts
  long double max;
};

constexpr precision precision_of(dtype t) {
  switch (t) {
    case dtype::f64: return {53, -1022, std::numeric_limits<double>::max()};
    case dtype::f16: return {11, -14, 65504};
    case dtype::bf16: return {8, -126, 0x1.fep127L};
    default: return {24, -126, std::numeric_limits<float>::max()};
  }
}

/// The spacing of a type's numbers at |x|.
inline long double ulp(dtype t, long double x) {
  const precision p = precision_of(t);
  const int exponent = x == 0 || !std::isfinite(x) ? p.min_exponent : std::ilogb(x);
  return std::ldexp(1.0L, (exponent < p.min_exponent ? p.min_exponent : exponent) - p.digits + 1);
}

constexpr dtype arithmetic_of(dtype t) {
  return t == dtype::f64 ? dtype::f64 : dtype::f32;
}

/// One tensor of a result beside the two evaluations that judge it.
struct comparison {
  const std::vector<long double>* got;
  const std::vector<long double>* oracle;
  const std::vector<long double>* naive;
  const std::vector<long double>* terms;  ///< may be empty: no element is exactly 0 by definition
  std::vector<long double> scale;
  dtype arithmetic;                ///< type of the arithmetic
  dtype storage;                   ///< type of the elements that were written
  long double given_error = 0;     ///< relative error that a rounded lse, average or w brings along
  long double count = 0;           ///< terms of an element, for the denormal range
  long double given_absolute = 0;  ///< what weights and given averages below the normal range bring along
};

/// Central differences of f with step h = eps^(1/3) of x: the truncation h^2/6 f''' and the rounding eps f / h meet at
/// eps^(2/3). `size` bounds f and its derivatives: the sum of the absolute terms that f adds up.
inline constexpr double difference_step = 6.0554544523933429e-6;  // cbrt(2^-52)
inline long double difference_bound(long double size) {
  return 16 * difference_step * difference_step * size;
}

/// What products of bfloat16 pairs may move an average by, in units of max|v| (docs/developing/performance.md): both
/// weights of a term are rounded, and their product with v, by u each. The first two move the average by (1 + u)^2 - 1
/// times the mean distance of v from it, which is at most max|v|.
inline constexpr long double pair_rounding = 3 * 0x1p-8L * (1 + 4 * 0x1p-8L);

/// The largest error of the naive loop in units of the scale.
inline long double naive_error(const comparison& c) {
  long double worst = 0;
  for (std::size_t i = 0; i < c.oracle->size(); ++i) {
    const long double error = std::abs((*c.naive)[i] - (*c.oracle)[i]);
    if (std::isfinite(error) && c.scale[i] > 0 && std::isfinite(c.scale[i]))
      worst = std::max(worst, error / c.scale[i]);
  }
  return worst;
}

/// Empty when every element is within its bound, else the first that is not, in words.
/// Where the oracle is NaN or infinite the result must not be finite: an infinity in v may meet a weight that is tiny
/// in the oracle and 0 in the type, so which of the two comes out is open. -inf (an lse) must be met exactly.
std::string first_mismatch(const comparison& c);

}  // namespace aft::test
