// SPDX-License-Identifier: Apache-2.0
// half and bfloat16: all 65536 patterns, and rounding against an oracle that only uses long double.
#include <aft/core/views/element_access.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

// A 16-bit format by its definition: fraction bits and exponent bias.
struct format {
  int fraction_bits;
  int bias;
  int largest_exponent;  // the all-ones field, of infinities and NaN
};
constexpr format binary16{10, 15, 31};
constexpr format bf16{7, 127, 255};

// The value of a pattern; NaN and infinities included.
long double value_of(const format& f, std::uint16_t bits) {
  const int fraction = bits & ((1 << f.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> f.fraction_bits;
  const long double sign = (bits & 0x8000) != 0 ? -1.0L : 1.0L;
  if (exponent == f.largest_exponent) {
    return fraction != 0 ? std::numeric_limits<long double>::quiet_NaN()
                         : sign * std::numeric_limits<long double>::infinity();
  }
  const int subnormal = exponent == 0 ? 1 : 0;
  const long double significand = static_cast<long double>(fraction + (subnormal != 0 ? 0 : 1 << f.fraction_bits));
  return sign * std::ldexp(significand, exponent + subnormal - f.bias - f.fraction_bits);
}

// The non-negative finite values in ascending order: pattern p has the value table[p].
std::vector<long double> ascending(const format& f) {
  std::vector<long double> table;
  table.reserve(1 << 15);
  for (int p = 0; p < f.largest_exponent << f.fraction_bits; ++p)
    table.push_back(value_of(f, static_cast<std::uint16_t>(p)));
  return table;
}

// Round to nearest, ties to the even pattern, by comparing distances; beyond the last value by half a step is infinity.
std::uint16_t nearest(const std::vector<long double>& table, long double x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const long double a = std::fabs(x);
  std::size_t low = 0;
  for (std::size_t step = table.size(); step > 0; step /= 2) {
    while (low + step < table.size() && table[low + step] <= a) low += step;
  }
  const long double above = low + 1 < table.size() ? table[low + 1] : 2 * table[low] - table[low - 1];
  const long double down = a - table[low];
  const long double up = above - a;
  const std::size_t pattern = up < down || (up == down && low % 2 == 1) ? low + 1 : low;
  return static_cast<std::uint16_t>(sign | pattern);
}

template <class T>
void check_all_patterns(const format& f) {
  for (int p = 0; p <= 0xffff; ++p) {
    const auto bits = static_cast<std::uint16_t>(p);
    const T x = T::from_bits(bits);
    const float widened = static_cast<float>(x);
    const long double expected = value_of(f, bits);
    CAPTURE(p);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(widened));
      // Stays a NaN with its sign on the way back, quiet.
      const std::uint16_t back = T(widened).bits;
      REQUIRE(std::isnan(static_cast<float>(T::from_bits(back))));
      REQUIRE((back & 0x8000) == (bits & 0x8000));
      continue;
    }
    REQUIRE(static_cast<long double>(widened) == expected);
    REQUIRE(std::signbit(widened) == std::signbit(expected));
    REQUIRE(T(widened).bits == bits);
  }
}

// Floats that stress rounding: every value, every midpoint of two neighbours, and the floats on both sides of each.
template <class T>
void check_rounding(const format& f) {
  const std::vector<long double> table = ascending(f);
  const auto check = [&](float x) {
    CAPTURE(x);
    REQUIRE(T(x).bits == nearest(table, static_cast<long double>(x)));
    REQUIRE(T(-x).bits == nearest(table, -static_cast<long double>(x)));
  };
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    for (const long double at : {table[i], (table[i] + table[i + 1]) / 2}) {
      const auto x = static_cast<float>(at);
      check(x);
      check(std::nextafter(x, 0.0f));
      const float next = std::nextafter(x, std::numeric_limits<float>::infinity());
      if (std::isfinite(next)) check(next);
    }
  }
  check(std::numeric_limits<float>::max());
  check(std::numeric_limits<float>::denorm_min());
  std::mt19937 rng(3);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::fabs(std::bit_cast<float>(static_cast<std::uint32_t>(rng())));
    if (std::isfinite(x)) check(x);
  }
}

}  // namespace

TEST_CASE("half: every pattern widens exactly and comes back") {
  check_all_patterns<aft::half>(binary16);
}
TEST_CASE("bfloat16: every pattern widens exactly and comes back") {
  check_all_patterns<aft::bfloat16>(bf16);
}
TEST_CASE("half: floats round to nearest even") {
  check_rounding<aft::half>(binary16);
}
TEST_CASE("bfloat16: floats round to nearest even") {
  check_rounding<aft::bfloat16>(bf16);
}

TEST_CASE("half: the ends of the range") {
  CHECK(aft::half(65504.0f).bits == 0x7bff);
  CHECK(aft::half(65519.0f).bits == 0x7bff);
  CHECK(aft::half(65520.0f).bits == 0x7c00);
  CHECK(aft::half(-std::numeric_limits<float>::infinity()).bits == 0xfc00);
  CHECK(aft::half(0x1p-24f).bits == 1);
  CHECK(aft::half(0x1p-25f).bits == 0);
  CHECK(aft::half(0x1.000002p-25f).bits == 1);
  CHECK(aft::half(-0.0f).bits == 0x8000);
}

TEST_CASE("conversions work at compile time") {
  static_assert(static_cast<float>(aft::half(1.5f)) == 1.5f);
  static_assert(static_cast<float>(aft::bfloat16(-3.0f)) == -3.0f);
  static_assert(aft::half::from_bits(0x3c00).bits == 0x3c00);
}

TEST_CASE("doubles are stored in 16 bits as if rounded once") {
  // Just above a midpoint: rounding to float first would land on it, and then on the even neighbour below.
  const double above_midpoint = 1.0 + 0x1p-11 + 0x1p-40;
  aft::half h{};
  aft::store_element(&h, aft::dtype::f16, 0, above_midpoint);
  CHECK(h.bits == 0x3c01);
  CHECK(aft::half(static_cast<float>(above_midpoint)).bits == 0x3c00);
  const std::vector<long double> halves = ascending(binary16), bfloats = ascending(bf16);
  std::mt19937_64 rng(5);
  for (int i = 0; i < 100000; ++i) {
    const int exponent = static_cast<int>(rng() % 50) - 30;
    double x = std::ldexp(1.0 + static_cast<double>(rng() >> 12) * 0x1p-52, exponent);
    // Every other one within 2^-40 of a midpoint of half's values.
    if (i % 2 == 0)
      x = std::ldexp(1.0 + static_cast<double>(rng() % 1024) * 0x1p-10 + 0x1p-11, exponent) *
          (1 + (i % 4 - 1) * 0x1p-41);
    if (i % 3 == 0) x = -x;
    aft::bfloat16 b{};
    aft::store_element(&h, aft::dtype::f16, 0, x);
    aft::store_element(&b, aft::dtype::bf16, 0, x);
    CAPTURE(x);
    REQUIRE(h.bits == nearest(halves, static_cast<long double>(x)));
    REQUIRE(b.bits == nearest(bfloats, static_cast<long double>(x)));
  }
}

TEST_CASE("names, sizes and arithmetic types") {
  CHECK(aft::dtype_of<aft::half> == aft::dtype::f16);
  CHECK(aft::dtype_of<bool> == aft::dtype::u8);
  CHECK(aft::dtype_of<long> == aft::dtype::i64);
  CHECK(aft::dtype_of<long long> == aft::dtype::i64);
  CHECK(aft::dtype_of<int> == aft::dtype::i32);
  CHECK(aft::dtype_of<unsigned long> == aft::dtype::u64);
  CHECK(aft::dtype_of<void*> == aft::dtype::other);
  CHECK(aft::size_of(aft::dtype::i16) == 2);
  CHECK(aft::size_of(aft::dtype::f64) == 8);
  CHECK(aft::size_of(aft::dtype::bf16) == 2);
  CHECK(std::string(aft::name_of(aft::dtype::bf16)) == "bfloat16");
  static_assert(std::is_same_v<aft::compute_t<aft::half>, float>);
  static_assert(std::is_same_v<aft::compute_t<double>, double>);
  static_assert(aft::element<aft::bfloat16> && !aft::element<int>);
}
