// SPDX-License-Identifier: Apache-2.0
// The algebra of all operators: any way of cutting a row's keys into sets and merging those gives the row.
#include <aft/math/exp_sum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace {

using aft::exp_sum;

struct term {
  double x, v;
};

exp_sum<double> of_key(const term& key) {
  return {key.x, key.v, 1};
}

exp_sum<double> merged(const std::vector<term>& keys, std::size_t begin, std::size_t end, std::mt19937& random) {
  if (begin == end) return aft::empty_exp_sum<double>();
  if (begin + 1 == end) return of_key(keys[begin]);
  // A cut at an end merges with the sum over nothing.
  const std::size_t cut = std::uniform_int_distribution<std::size_t>(begin, end)(random);
  if (cut == begin || cut == end) {
    const std::size_t half = begin + (end - begin) / 2;
    const auto rest = aft::merge(merged(keys, begin, half, random), merged(keys, half, end, random));
    const auto nothing = aft::empty_exp_sum<double>();
    return cut == begin ? aft::merge(nothing, rest) : aft::merge(rest, nothing);
  }
  return aft::merge(merged(keys, begin, cut, random), merged(keys, cut, end, random));
}

// The definition, in a type with room for e^500.
struct row {
  long double num = 0, den = 0, num_terms = 0;
};
row by_definition(const std::vector<term>& keys) {
  row sum;
  for (const term& key : keys) {
    const long double e = std::exp(static_cast<long double>(key.x));
    sum.num += e * key.v;
    sum.num_terms += e * std::abs(key.v);
    sum.den += e;
  }
  return sum;
}

TEST_CASE("merging the sums over parts of a row, cut anywhere, gives the row") {
  std::mt19937 random(20240607);
  std::normal_distribution<double> normal;
  for (double spread : {0.1, 3.0, 100.0}) {
    std::vector<term> keys(67);
    for (term& key : keys) key = {spread * normal(random), normal(random)};
    const row want = by_definition(keys);
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto got = merged(keys, 0, keys.size(), random);
      // A term goes through at most one product and one sum for each merge on its way up, of which there are fewer than
      // keys, and its units e^(a.max - max) round their argument, which is at most the range of the logits: eps |x|.
      double range = 0;
      for (const term& a : keys)
        for (const term& b : keys) range = std::max(range, a.x - b.x);
      const double eps = std::numeric_limits<double>::epsilon();
      const auto steps = static_cast<double>(keys.size());
      const double bound = eps * (3 * steps + 2 * range);
      CHECK(std::abs(aft::lse_of(got) - static_cast<double>(std::log(want.den))) <= bound + eps * range);
      const auto size = static_cast<double>(want.num_terms / want.den);
      CHECK(std::abs(aft::average_of(got) - static_cast<double>(want.num / want.den)) <= 2 * bound * size);
    }
  }
}

TEST_CASE("logits beyond the range of exp merge as near ones do") {
  const auto far = aft::merge(of_key({5000, 2}), of_key({5000, 4}));
  CHECK(far.max == 5000);
  CHECK(aft::average_of(far) == 3);
  CHECK(aft::lse_of(far) == 5000 + std::log(2.0));
  const auto dominated = aft::merge(of_key({-5000, 2}), of_key({5000, 4}));
  CHECK(aft::average_of(dominated) == 4);
}

TEST_CASE("the sum over no keys is neutral and averages to 0") {
  const auto nothing = aft::empty_exp_sum<double>();
  const auto one = of_key({-3, 7});
  for (const auto& sum : {aft::merge(nothing, one), aft::merge(one, nothing)}) {
    CHECK(sum.max == one.max);
    CHECK(sum.num == one.num);
    CHECK(sum.den == one.den);
  }
  const auto still = aft::merge(nothing, nothing);
  CHECK(aft::average_of(still) == 0);
  CHECK(aft::lse_of(still) == -std::numeric_limits<double>::infinity());
}

TEST_CASE("a NaN logit stays") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(aft::average_of(aft::merge(of_key({nan, 1}), of_key({0, 1})))));
  CHECK(std::isnan(aft::average_of(aft::merge(of_key({0, 1}), of_key({nan, 1})))));
}

}  // namespace
