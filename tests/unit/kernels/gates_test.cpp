// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <aft/cpu/math/gates.hpp>

namespace {

using aft::gate;

long double value_of(gate g, long double q) {
  switch (g) {
    case gate::none: return 1;
    case gate::identity: return q;
    case gate::sigmoid: return 1 / (1 + std::exp(-q));
    case gate::relu: return q > 0 ? q : 0;
    case gate::tanh: return std::tanh(q);
    case gate::silu: return q / (1 + std::exp(-q));
  }
  return 0;
}

long double slope_of(gate g, long double q) {
  const long double s = 1 / (1 + std::exp(-q));
  const long double rest = 1 / (1 + std::exp(q));
  switch (g) {
    case gate::none: return 0;
    case gate::identity: return 1;
    case gate::sigmoid: return s * rest;
    case gate::relu: return q > 0 ? 1 : 0;
    case gate::tanh: return 1 / (std::cosh(q) * std::cosh(q));
    case gate::silu: return s + q * s * rest;
  }
  return 0;
}

constexpr gate all_gates[] = {gate::none, gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu};

template <class C>
C value(gate g, C q) {
  C out[aft::cpu_impl::lanes<C>];
  aft::cpu_impl::store(out, aft::cpu_impl::gate_value<C>(g, aft::cpu_impl::vec<C>(q)));
  return out[0];
}

template <class C>
C slope(gate g, C q) {
  C out[aft::cpu_impl::lanes<C>];
  aft::cpu_impl::store(out, aft::cpu_impl::gate_slope<C>(g, aft::cpu_impl::vec<C>(q)));
  return out[0];
}

}  // namespace

TEST_CASE_TEMPLATE("gates and their slopes follow the formulas", C, float, double) {
  const long double ulp = std::numeric_limits<C>::epsilon();
  // A subnormal factor may come out as 0; silu multiplies it by up to 100 here. Not so where e^-q is a number: there it
  // is off by half of the least one, which silu and its slope take up to 200 of.
  const long double most = std::log(static_cast<long double>(std::numeric_limits<C>::max()));
  const auto floor_at = [&](gate g, C q) -> long double {
    const bool number = (g == gate::sigmoid || g == gate::silu) && -q < most;
    return number ? std::numeric_limits<C>::denorm_min() : std::numeric_limits<C>::min();
  };
  for (gate g : all_gates) {
    CAPTURE(static_cast<int>(g));
    for (int i = -6000; i <= 6000; ++i) {
      const C q = static_cast<C>(i) / C(60);
      CAPTURE(q);
      const long double expected = value_of(g, q), floor = floor_at(g, q);
      CHECK(std::abs(value<C>(g, q) - expected) <= 4 * ulp * std::abs(expected) + 256 * floor);
      // silu' passes through 0 at q = -1.28, where it is the difference of two numbers near 0.2.
      const long double scale = g == gate::silu ? std::abs(slope_of(g, q)) + 0.25L * (std::abs(q) < 3) : slope_of(g, q);
      CHECK(std::abs(slope<C>(g, q) - slope_of(g, q)) <= 8 * ulp * scale + 256 * floor);
    }
  }
}

TEST_CASE_TEMPLATE("gates at the ends of the range", C, float, double) {
  const C inf = std::numeric_limits<C>::infinity();
  const C big = std::numeric_limits<C>::max();
  const C tiny = std::numeric_limits<C>::min();
  for (C x : {big, inf}) {
    CHECK(value<C>(gate::sigmoid, x) == 1);
    CHECK(value<C>(gate::sigmoid, -x) == 0);
    CHECK(value<C>(gate::tanh, x) == 1);
    CHECK(value<C>(gate::tanh, -x) == -1);
    CHECK(value<C>(gate::silu, x) == x);
    CHECK(value<C>(gate::silu, -x) == 0);
    CHECK(value<C>(gate::relu, x) == x);
    CHECK(value<C>(gate::relu, -x) == 0);
    CHECK(slope<C>(gate::sigmoid, x) == 0);
    CHECK(slope<C>(gate::sigmoid, -x) == 0);
    CHECK(slope<C>(gate::tanh, x) == 0);
    CHECK(slope<C>(gate::silu, x) == 1);
    CHECK(slope<C>(gate::silu, -x) == 0);
    CHECK(slope<C>(gate::relu, x) == 1);
    CHECK(slope<C>(gate::relu, -x) == 0);
  }
  CHECK(slope<C>(gate::relu, C(0)) == 0);
  CHECK(value<C>(gate::tanh, tiny) == tiny);
  CHECK(value<C>(gate::tanh, -tiny) == -tiny);
}

TEST_CASE_TEMPLATE("a NaN in q stays a NaN, and gate::none does not look", C, float, double) {
  const C nan = std::numeric_limits<C>::quiet_NaN();
  for (gate g : {gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu})
    CHECK(std::isnan(value<C>(g, nan)));
  for (gate g : {gate::sigmoid, gate::relu, gate::tanh, gate::silu}) CHECK(std::isnan(slope<C>(g, nan)));
  CHECK(value<C>(gate::none, nan) == 1);
  CHECK(slope<C>(gate::none, nan) == 0);
}
