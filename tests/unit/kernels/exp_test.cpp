// SPDX-License-Identifier: Apache-2.0
// The CPU backend's exponentials against std::exp in long double.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <aft/cpu/math/exp_table.hpp>
#include <aft/cpu/math/exp_weight.hpp>

namespace {

using aft::index_t;
using namespace aft::cpu_impl;

/// mantissa * floor(exponent) in long double, of all lanes.
template <class C>
void check_lanes(const split_exp<C>& e, const C* x, long double ulps, bool integral) {
  C mantissa[lanes<C>], exponent[lanes<C>];
  store(mantissa, e.mantissa);
  store(exponent, e.exponent);
  for (index_t l = 0; l < lanes<C>; ++l) {
    CAPTURE(x[l]);
    const long double power = std::floor(static_cast<long double>(exponent[l]));
    if (integral) CHECK(power == exponent[l]);
    const long double expected = std::exp(static_cast<long double>(x[l]));
    const long double got = std::ldexp(static_cast<long double>(mantissa[l]), static_cast<int>(power));
    CHECK(std::abs(got - expected) <= ulps * std::numeric_limits<C>::epsilon() * expected);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("exp as mantissa and power of two, over the whole range", C, float, double) {
  const C range = exp_constants<C>::range;
  const index_t steps = 400000;
  for (index_t n = 0; n < steps; n += lanes<C>) {
    C x[lanes<C>];
    // Half of the samples where results are ordinary numbers.
    const C reach = n % (2 * lanes<C>) == 0 ? range : C(20);
    for (index_t l = 0; l < lanes<C>; ++l) x[l] = reach * (C(2 * (n + l)) / C(steps) - C(1));
    check_lanes<C>(exp_split<C>(load(x)), x, 1.2L, true);
    check_lanes<C>(exp_parts<C>(load(x)), x, 1.2L, false);
  }
}

TEST_CASE_TEMPLATE("exp_parts and times_pow2 round to what exp gives, and pass NaN on", C, float, double) {
  C out[lanes<C>];
  for (int i = -80; i <= 80; ++i) {
    const C x = static_cast<C>(i);
    const split_exp<C> e = exp_parts<C>(vec<C>(x));
    store(out, times_pow2<C>(e.mantissa, e.exponent));
    const long double expected = std::exp(static_cast<long double>(x));
    CHECK(std::abs(out[0] - expected) <= 1.2L * std::numeric_limits<C>::epsilon() * expected);
    store(out, times_pow2<C>(e.mantissa, e.exponent - vec<C>(C(7))));
    CHECK(std::abs(out[0] * 128 - expected) <= 1.2L * std::numeric_limits<C>::epsilon() * expected);
  }
  const split_exp<C> e = exp_parts<C>(vec<C>(std::numeric_limits<C>::quiet_NaN()));
  store(out, times_pow2<C>(e.mantissa, e.exponent));
  CHECK(std::isnan(out[0]));
}

TEST_CASE_TEMPLATE("exp of weights has one base for all, and the same bits wherever its power of two is taken", C,
                   float, double) {
  const index_t steps = 200000;
  const C reach(sizeof(C) == 4 ? 80 : 700);
  for (index_t n = 0; n < steps; n += lanes<C>) {
    C x[lanes<C>], near[lanes<C>], minus[lanes<C>], parts[lanes<C>];
    for (index_t l = 0; l < lanes<C>; ++l) x[l] = reach * (C(2 * (n + l)) / C(steps) - C(1));
    const vec<C> shift(C(n % 11 - 5));
    store(near, exp_near<C>(load(x), shift));
    store(minus, exp_near<C, true>(-load(x), shift));
    const split_exp<C> e = exp_weight<C>(load(x));
    store(parts, times_pow2<C>(e.mantissa, e.exponent - shift));
    for (index_t l = 0; l < lanes<C>; ++l) {
      CAPTURE(x[l]);
      CHECK(near[l] == parts[l]);
      CHECK(minus[l] == parts[l]);
      const long double expected = std::exp(static_cast<long double>(x[l]) * (1.0L + base_excess<C>)) *
                                   std::exp2(-static_cast<long double>(n % 11 - 5));
      CHECK(std::abs(near[l] - expected) <= 1.5L * std::numeric_limits<C>::epsilon() * expected);
    }
  }
  C out[lanes<C>];
  store(out, exp_near<C>(vec<C>(std::numeric_limits<C>::quiet_NaN()), vec<C>(C(0))));
  CHECK(std::isnan(out[0]));
}

TEST_CASE_TEMPLATE("weights that are scaled have the bits of exp_weight, and are 0 where they would underflow", C,
                   float, double) {
  const index_t steps = 200000;
  const C least(sizeof(C) == 4 ? C(-125) : C(-1022)), reach = exp_constants<C>::range;
  index_t numbers = 0, zeros = 0;
  for (index_t n = 0; n < steps; n += lanes<C>) {
    C x[lanes<C>], scaled[lanes<C>], parts[lanes<C>], power[lanes<C>];
    // Scales up to that of the largest argument, and arguments from far below it.
    const C top = reach * (C(2 * n) / C(steps) - C(1)) * C(0.5);
    const vec<C> shift = exponent_of<C>(vec<C>(top));
    for (index_t l = 0; l < lanes<C>; ++l) x[l] = top - C((n * 7 + l * 13) % 200);
    store(scaled, weight_scaled<C>(load(x), shift));
    const split_exp<C> e = exp_weight_whole<C>(load(x));
    store(power, e.exponent - shift);
    store(parts, times_pow2<C>(e.mantissa, e.exponent - shift));
    for (index_t l = 0; l < lanes<C>; ++l) {
      CAPTURE(x[l]);
      CAPTURE(top);
      CHECK(power[l] == std::floor(power[l]));
      if (power[l] >= least) CHECK(scaled[l] == parts[l]);
      if (power[l] < least - 2) CHECK(scaled[l] == C(0));
      numbers += power[l] >= least ? 1 : 0;
      zeros += power[l] < least - 2 ? 1 : 0;
    }
  }
  CHECK(numbers > steps / 4);
  if (sizeof(C) == 4) CHECK(zeros > steps / 4);
  C out[lanes<C>];
  const C inf = std::numeric_limits<C>::infinity();
  for (const C x : {-inf, std::numeric_limits<C>::lowest(), C(-1e5)}) {
    store(out, weight_scaled<C>(vec<C>(x), vec<C>(C(-2954))));
    CHECK(out[0] == C(0));
  }
  store(out, weight_scaled<C>(vec<C>(C(0)), vec<C>(C(3))));
  CHECK(out[0] == C(0.125));
  for (const C x : {std::numeric_limits<C>::quiet_NaN(), inf - inf}) {
    store(out, weight_scaled<C>(vec<C>(x), vec<C>(C(0))));
    CHECK(std::isnan(out[0]));
  }
}
