// SPDX-License-Identifier: Apache-2.0
// The folds of a column merged by a block (aft/cuda/fold/runs.cuh), without the kernels that fold the tiles.
#include <doctest/doctest.h>

#include <aft/cuda/fold/uniform_keys.cuh>
#include <aft/cuda/device/runtime.cuh>
#include <aft/cuda/scan/keys.cuh>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

using aft::index_t;
using namespace aft::cuda_impl;

namespace {

template <class Fold>
using folds = std::vector<Fold>;

template <class C>
void fill(key_sum<C>& fold, std::mt19937& random) {
  std::normal_distribution<double> normal;
  fold.num = static_cast<C>(normal(random));
  fold.den = static_cast<C>(std::abs(normal(random)));
  fold.top = static_cast<C>(static_cast<int>(random() % 41) - 20);
  fold.largest = static_cast<C>(std::abs(normal(random)));
}

template <class C>
void fill(query_sum<C>& fold, std::mt19937& random) {
  std::normal_distribution<double> normal;
  fold.a = static_cast<C>(normal(random));
  fold.b = static_cast<C>(normal(random));
  fold.top = static_cast<C>(static_cast<int>(random() % 41) - 20);
  fold.centre = static_cast<C>(3 + normal(random));
}

/// (count, columns), the columns' numbers the same however many there are; every eleventh tile has no key.
template <class Fold>
folds<Fold> random_folds(index_t count, index_t columns) {
  folds<Fold> all(static_cast<std::size_t>(count * columns));
  for (index_t c = 0; c < columns; ++c) {
    std::mt19937 random(static_cast<unsigned>(17 + c));
    for (index_t i = 0; i < count; ++i) {
      Fold& fold = all[static_cast<std::size_t>(i * columns + c)];
      if (random() % 11 != 0) fill(fold, random);
    }
  }
  return all;
}

template <class Fold>
struct both_sides {
  folds<Fold> before, after;
};

template <class Fold>
run_plan plan_of(index_t count, index_t columns) {
  return plan_runs(columns, count, run_warps<Fold>);
}

/// What uniform_sums_kernel makes of the folds of tiles; it starts from NaN patterns.
template <class Fold>
both_sides<Fold> run_outer(folds<Fold> tiles, index_t count, index_t columns) {
  both_sides<Fold> to;
  for (auto* side : {&to.before, &to.after}) {
    side->resize(static_cast<std::size_t>((count + 1) * columns));
    aft::emulator::fill_poison(side->data(), side->size() * sizeof(Fold));
  }
  uniform_sums<Fold> uniform;
  uniform.used = true;
  uniform.columns = uniform.channels = columns;
  uniform.tiles = count;
  uniform.partials = tiles.data();
  uniform.before = to.before.data();
  uniform.after = to.after.data();
  const run_plan runs = plan_of<Fold>(count, columns);
  call_stream("runs", nullptr).launch(uniform_sums_kernel<Fold>, 2 * runs.blocks(), runs.threads(), uniform, runs);
  return to;
}

template <class Fold>
bool same_bits(const Fold& a, const Fold& b) {
  return std::memcmp(&a, &b, sizeof(Fold)) == 0;
}

/// Merges that a result has behind it at most.
index_t steps(const run_plan& plan) {
  return 2 * ((plan.count + plan.warps - 1) / plan.warps) + plan.warps - 1;
}

/// Every merge rounds each of num and den once, relative to a sum of at most all absolute terms; powers of two do not
/// round, and what they push below the normal numbers is far below u of the largest.
template <class C>
void check_sums(const key_sum<C>* from, const key_sum<C>& got, index_t n, index_t columns, index_t joins) {
  long double num = 0, den = 0, terms = 0;
  C largest = C(0);
  for (index_t i = 0; i < n; ++i) {
    const auto& f = from[i * columns];
    if (f.top == no_exponent<C>) continue;
    const long double unit = std::exp2(static_cast<long double>(f.top));
    num += f.num * unit;
    den += f.den * unit;
    terms += std::abs(f.num) * unit;
    largest = std::max(largest, f.largest);
  }
  const long double u = std::numeric_limits<C>::epsilon() / 2, least = std::numeric_limits<C>::min();
  const long double unit = got.den == 0 ? 0 : std::exp2(static_cast<long double>(got.top));
  const long double most = static_cast<long double>(joins) * u;
  const long double lost = static_cast<long double>(n) * least * unit;
  CHECK(std::abs(got.num * unit - num) <= most * terms + lost);
  CHECK(std::abs(got.den * unit - den) <= most * den + lost);
  CHECK(got.largest == largest);
}

/// Every merge rounds a once and b twice. What a has lost is multiplied by how far the centre moves from there on,
/// which is at most the distance D between two centres: 3 roundings of sum |b| + |a| D.
template <class C>
void check_sums(const query_sum<C>* from, const query_sum<C>& got, index_t n, index_t columns, index_t joins) {
  long double a = 0, b = 0, terms_a = 0, terms_b = 0, apart = 0;
  for (index_t i = 0; i < n; ++i) {
    const auto& f = from[i * columns];
    if (f.top == no_exponent<C>) continue;
    const long double unit = std::exp2(static_cast<long double>(f.top));
    const long double shift = static_cast<long double>(f.centre) - got.centre;
    a += f.a * unit;
    b += (f.b + f.a * shift) * unit;
    terms_a += std::abs(f.a) * unit;
    terms_b += std::abs(f.b) * unit;
    apart = std::max(apart, std::abs(shift));
  }
  const long double u = std::numeric_limits<C>::epsilon() / 2, least = std::numeric_limits<C>::min();
  const long double unit = got.top == no_exponent<C> ? 0 : std::exp2(static_cast<long double>(got.top));
  const long double most = static_cast<long double>(joins) * u;
  const long double lost = static_cast<long double>(n) * least * unit * (1 + 2 * apart);
  CHECK(std::abs(got.a * unit - a) <= most * terms_a + lost);
  // Two centres are at most twice as far apart as the farther of them is from a third.
  CHECK(std::abs(got.b * unit - b) <= 3 * most * (terms_b + 2 * apart * terms_a) + lost);
}

template <class Fold>
void check_all(index_t count, index_t columns) {
  const auto tiles = random_folds<Fold>(count, columns);
  const auto got = run_outer(tiles, count, columns);
  const index_t joins = steps(plan_of<Fold>(count, columns));
  for (index_t c : {index_t{0}, columns - 1})
    for (index_t i = 0; i <= count; i += i < 70 ? 1 : 67) {
      CAPTURE(count);
      CAPTURE(c);
      CAPTURE(i);
      const auto at = static_cast<std::size_t>(i * columns + c);
      check_sums(tiles.data() + c, got.before[at], i, columns, joins);
      check_sums(tiles.data() + i * columns + c, got.after[at], count - i, columns, joins);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("runs: every fold before and from a tile, of one tile and of runs in all warps", Fold,
                   key_sum<float>, key_sum<double>, query_sum<float>, query_sum<double>) {
  // 2048: as many warps as there can be; 35: a run that is cut short, and warps without one.
  for (index_t count : {0, 1, 2, 4, 5, 35, 1025, 2048}) check_all<Fold>(count, 1);
  check_all<Fold>(35, 33);
}

TEST_CASE_TEMPLATE("runs: a column gives the same bits alone and beside others", Fold, key_sum<float>, query_sum<float>,
                   query_sum<double>) {
  for (index_t count : {7, 150}) {
    const auto alone = run_outer(random_folds<Fold>(count, 1), count, 1);
    for (index_t columns : {2, 40}) {
      const auto many = run_outer(random_folds<Fold>(count, columns), count, columns);
      for (index_t i = 0; i <= count; ++i) {
        const auto at = static_cast<std::size_t>(i * columns);
        CHECK(same_bits(many.before[at], alone.before[static_cast<std::size_t>(i)]));
        CHECK(same_bits(many.after[at], alone.after[static_cast<std::size_t>(i)]));
      }
    }
  }
}

TEST_CASE("runs: a tile's NaN reaches those that see it, and what comes later changes no bit of what was before") {
  constexpr index_t count = 150, columns = 2;
  const auto tiles = random_folds<key_sum<float>>(count, columns);
  const auto whole = run_outer(tiles, count, columns);
  for (index_t marked : {0, 9, 10, 77, 149}) {
    auto changed = tiles;
    auto& fold = changed[static_cast<std::size_t>(marked * columns)];
    fold.den = fold.num = std::numeric_limits<float>::quiet_NaN();
    const auto got = run_outer(changed, count, columns);
    for (index_t i = 0; i <= count; ++i) {
      CAPTURE(marked);
      CAPTURE(i);
      const auto at = static_cast<std::size_t>(i * columns);
      CHECK(same_bits(got.before[at + 1], whole.before[at + 1]));
      CHECK(same_bits(got.after[at + 1], whole.after[at + 1]));
      CHECK(std::isnan(got.before[at].den) == (i > marked));
      CHECK(std::isnan(got.after[at].den) == (i <= marked));
      if (i <= marked) CHECK(same_bits(got.before[at], whole.before[at]));
      if (i > marked) CHECK(same_bits(got.after[at], whole.after[at]));
    }
  }
}

TEST_CASE("runs: queries without a number have no exponent, and are not taken for none") {
  constexpr index_t count = 150;
  for (index_t marked : {0, 77, 149}) {
    auto tiles = random_folds<query_sum<float>>(count, 1);
    auto& fold = tiles[static_cast<std::size_t>(marked)];
    fold = {};
    fold.a = fold.b = std::numeric_limits<float>::quiet_NaN();
    const auto got = run_outer(tiles, count, 1);
    for (index_t i = 0; i <= count; ++i) {
      CAPTURE(i);
      CHECK(std::isnan(got.before[static_cast<std::size_t>(i)].a) == (i > marked));
      CHECK(std::isnan(got.after[static_cast<std::size_t>(i)].a) == (i <= marked));
    }
  }
}

TEST_CASE("runs: chunks of AFT-simple are replaced by what lies before, and queries by what lies after") {
  constexpr index_t columns = 3;
  const call_stream stream("runs", nullptr);
  for (index_t count : {1, 6, 150}) {
    auto keys = random_folds<key_sum<float>>(count, columns);
    const auto before = run_outer(keys, count, columns).before;
    const run_plan runs = plan_of<key_sum<float>>(count, columns);
    stream.launch(scan_prefix_kernel<float>, runs.blocks(), runs.threads(), runs, keys.data());
    for (std::size_t i = 0; i < keys.size(); ++i) CHECK(same_bits(keys[i], before[i]));

    for (bool causal : {false, true}) {
      const auto given = random_folds<query_sum<float>>(count, columns);
      const auto after = run_outer(given, count, columns).after;
      auto queries = given;
      run_plan back = plan_of<query_sum<float>>(count, columns);
      back.forwards = false;
      stream.launch(scan_reverse_kernel<float>, back.blocks(), back.threads(), back, queries.data(), causal);
      // Of all queries there is no need to go through the runs again: other merges, the same sum.
      for (index_t c = 0; c < columns && !causal; ++c)
        check_sums(given.data() + c, queries[static_cast<std::size_t>(c)], count, columns, steps(back));
      for (std::size_t i = 0; i < queries.size() && causal; ++i) {
        const auto& beyond = after[i + columns];
        query_sum<float> kept;
        kept.centre = given[i].top == no_exponent<float> ? beyond.centre : given[i].centre;
        CHECK(same_bits(queries[i], merge(kept, beyond)));
      }
    }
  }
}

TEST_CASE("runs: how long a column takes depends on its folds alone, and grows far slower than they do") {
  for (index_t columns : {1, 5000})
    for (const auto& [count, most] : {std::pair<index_t, index_t>{1, 2}, {16, 11}, {32, 15}, {1024, 95}, {2048, 159}})
      CHECK(steps(plan_runs(columns, count, tuning::run_warps)) == most);
}
