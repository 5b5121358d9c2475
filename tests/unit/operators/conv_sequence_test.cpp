// SPDX-License-Identifier: Apache-2.0
// AFT-conv over sequences that are worked on in parts: 56 queries at a time, with the keys under their boxes and sums
// of those before and after them. The test harness has every sequence of 24 keys and more go this way.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

setup sequence(index_t T, index_t taps) {
  return {.call = op::conv, .B = 2, .d = 6, .H = 3, .grid = {T}, .taps = {taps}};
}

/// The index of (b, t, c) of a tensor of `channels`.
std::size_t at(const setup& s, index_t channels, index_t b, index_t t, index_t c) {
  return static_cast<std::size_t>((b * s.grid[0] + t) * channels + c);
}

/// The first `rows` rows of every batch element.
std::vector<long double> first_rows(const setup& s, const std::vector<long double>& x, index_t rows) {
  std::vector<long double> part;
  const auto row = static_cast<std::ptrdiff_t>(x.size()) / s.B / s.grid[0];
  for (index_t b = 0; b < s.B; ++b) {
    const auto begin = x.begin() + b * s.grid[0] * row;
    part.insert(part.end(), begin, begin + rows * row);
  }
  return part;
}

}  // namespace

TEST_CASE("conv sequence: lengths about one, two and several parts, short and long filters") {
  unsigned seed = 3000;
  for (index_t T : {24, 55, 56, 57, 111, 112, 113, 190})
    for (index_t taps : {0, 1, 2, 7, 40, 128})
      for (bool causal : {false, true})
        for (auto out : {outside::zero_bias, outside::excluded}) {
          setup s = sequence(T, taps);
          s.causal = causal;
          s.outside = out;
          s.seed = ++seed;
          const numbers x = random_numbers(s);
          check_forward(aft::dtype::f32, s, x);
          if (seed % 5 == 0)
            for (auto type : {aft::dtype::f64, aft::dtype::f16, aft::dtype::bf16}) check_forward(type, s, x);
        }
}

TEST_CASE("conv sequence: channels of several items, of half a vector, of shared keys, every gate") {
  unsigned seed = 3300;
  for (auto [d, hk, H] : {std::array<index_t, 3>{1, 1, 1}, {3, 3, 1}, {40, 5, 5}, {64, 4, 4}, {280, 280, 280}})
    for (bool causal : {false, true}) {
      setup s = sequence(d > 100 ? 60 : 117, 5);
      s.B = d > 100 ? 1 : 2;
      s.d = d;
      s.hk = hk;
      s.H = H;
      s.causal = causal;
      s.lengths = d % 2 == 0;
      s.gate_fn = seed % 2 == 0 ? gate::sigmoid : (seed % 3 == 0 ? gate::relu : gate::none);
      s.seed = ++seed;
      check(s);
    }
}

TEST_CASE("conv sequence: what is hidden may hold NaN, over more than a part") {
  unsigned seed = 3400;
  for (bool causal : {false, true})
    for (auto out : {outside::zero_bias, outside::excluded}) {
      setup s = sequence(200, 9);
      s.causal = causal;
      s.outside = out;
      s.lengths = true;
      s.mask = mask_form::batch_keys;
      s.seed = ++seed;
      numbers x = random_numbers(s);
      x.lengths = {150, 70};
      for (index_t b = 0; b < s.B; ++b)
        for (index_t t = 0; t < 200; ++t) {
          // Rows up to here see no key of a causal call, and of one without pairs outside the box.
          const bool hidden = t < 120 * b || t >= x.lengths[static_cast<std::size_t>(b)];
          if (!hidden) continue;
          x.mask[static_cast<std::size_t>(b * 200 + t)] = 0;
          for (index_t c = 0; c < s.d; ++c) {
            x.k[at(s, s.d, b, t, c)] = std::nan("");
            x.v[at(s, s.d, b, t, c)] = c % 2 == 0 ? infinity : std::nan("");
          }
        }
      for (index_t c = 0; c < s.d; ++c) x.k[at(s, s.d, 0, 5, c)] = -infinity;
      x.r[3] = -infinity;
      for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_forward(type, s, x);
    }
}

TEST_CASE("conv sequence: keys and values that need another scale, from the first key on or late") {
  unsigned seed = 3500;
  for (index_t from : {0, 30, 100, 160})
    for (auto [key, value] : {std::pair{-20., 1.}, {60., 1.}, {90., 1e-30}, {0., 1e30}, {-3000., 1.}, {3000., 1e-40}})
      for (bool causal : {false, true})
        for (bool in_place : {false, true}) {
          setup s = sequence(170, 7);
          s.B = 1;
          // Whole vectors are used where they lie.
          if (from == 100) s.d = s.H = 32;
          s.causal = causal;
          s.in_place = in_place;
          s.outside = seed % 3 == 0 ? outside::excluded : outside::zero_bias;
          s.seed = ++seed;
          numbers x = random_numbers(s);
          for (index_t t = from; t < 170; ++t)
            for (index_t c = 0; c < s.d; c += 2) {
              x.k[at(s, s.d, 0, t, c)] += key;
              x.v[at(s, s.d, 0, t, c)] *= value;
            }
          for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_forward(type, s, x);
        }
}

TEST_CASE("conv grid: rows of whole vectors, with keys and values that need another scale, hidden ones with NaN") {
  unsigned seed = 3700;
  for (auto [key, value] : {std::pair{0., 1.}, {60., 1.}, {90., 1e-30}, {0., 1e30}, {-3000., 1.}, {3000., 1e-40}})
    for (index_t heads : {32, 2})
      for (bool in_place : {false, true}) {
        setup s{.call = op::conv, .B = 3, .d = 32, .hk = heads, .H = heads};
        s.grid = {5, 6};
        s.taps = {3, 3};
        s.in_place = in_place;
        s.seed = ++seed;
        numbers x = random_numbers(s);
        for (index_t t = 20; t < 30; ++t) {
          for (index_t c = 0; c < heads; c += 2) x.k[static_cast<std::size_t>((30 + t) * heads + c)] += key;
          for (index_t c = 0; c < 32; c += 3) x.v[static_cast<std::size_t>((30 + t) * 32 + c)] *= value;
        }
        for (index_t c = 0; c < heads; ++c) x.k[static_cast<std::size_t>((60 + 7) * heads + c)] = -infinity;
        for (index_t c = 0; c < 32; ++c) x.v[static_cast<std::size_t>((60 + 7) * 32 + c)] = std::nan("");
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
          check_forward(type, s, x);
          for (bool save : {false, true}) {
            s.save = save;
            if (!in_place) check_backward(type, s, x);
          }
        }
      }
}

TEST_CASE("conv sequence: NaN and infinities reach the rows that see them, and no other") {
  for (bool causal : {false, true})
    for (double odd : {infinity, std::nan("")}) {
      setup s = sequence(170, 7);
      s.causal = causal;
      s.outside = outside::excluded;
      numbers x = random_numbers(s);
      x.v[at(s, s.d, 0, 80, 1)] = odd;
      x.k[at(s, s.d, 1, 130, 4)] = odd;
      for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_forward(type, s, x);
    }
}

TEST_CASE("conv sequence: no bit of a causal row depends on what comes later") {
  constexpr index_t rows = 90;
  for (auto out : {outside::zero_bias, outside::excluded})
    for (double key : {0., 60., -40., 3000.})
      for (double value : {1., 1e30, 1e-30}) {
        setup s = sequence(170, 7);
        s.causal = true;
        s.outside = out;
        numbers x = random_numbers(s);
        for (index_t b = 0; b < s.B; ++b)
          for (index_t t = rows; t < 170; ++t)
            for (index_t c = 0; c < s.d; ++c) {
              x.k[at(s, s.d, b, t, c)] += key;
              x.v[at(s, s.d, b, t, c)] *= value;
            }
        // 20 keys alone are not worked on in parts.
        for (const index_t alone : {index_t{20}, rows}) {
          setup first = s;
          first.grid = {alone};
          numbers y = random_numbers(first);
          for (auto own : {&numbers::q, &numbers::k, &numbers::v})
            for (index_t b = 0; b < s.B; ++b)
              for (index_t i = 0; i < alone * s.d; ++i)
                (y.*own)[at(first, s.d, b, 0, i)] = (x.*own)[at(s, s.d, b, 0, i)];
          y.r = x.r;
          for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
            CAPTURE(describe(completed(s), type));
            CAPTURE(alone);
            const results whole = run_forward(type, s, x), part = run_forward(type, first, y);
            for (auto own : {&results::y, &results::average, &results::lse})
              CHECK(first_rows(s, whole.*own, alone) == part.*own);
          }
        }
      }
}

TEST_CASE("conv sequence: the same bits for every executor, batch and choice of outputs") {
  for (bool causal : {false, true}) {
    setup s = sequence(130, 6);
    s.B = 3;
    s.d = 70;
    s.H = 70;
    s.causal = causal;
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::bf16}) {
      CAPTURE(describe(completed(s), type));
      const results whole = run_forward(type, s, x);
      for (const auto& exec : equivalent_executors())
        CHECK(first_difference(whole, run_forward(type, s, x, exec)) == "");
      setup bare = s;
      bare.save = false;
      CHECK(run_forward(type, bare, x).y == whole.y);
      setup one = s;
      one.B = 1;
      numbers y = x;
      for (auto own : {&numbers::q, &numbers::k, &numbers::v}) {
        const auto each = static_cast<std::ptrdiff_t>((x.*own).size()) / s.B;
        y.*own = {(x.*own).begin() + each, (x.*own).begin() + 2 * each};
      }
      const auto each = static_cast<std::ptrdiff_t>(whole.y.size()) / s.B;
      CHECK(run_forward(type, one, y).y ==
            std::vector<long double>(whole.y.begin() + each, whole.y.begin() + 2 * each));
    }
  }
}

TEST_CASE(
    "conv sequence: equal weights over thousands of keys, where a plain sum rounds and a loop by definition does not") {
  for (bool causal : {false, true}) {
    setup s = sequence(2500, 7);
    s.B = 1;
    s.d = 1;
    s.H = 1;
    s.causal = causal;
    s.gate_fn = gate::none;
    numbers x = random_numbers(s);
    for (double& k : x.k) k = std::copysign(60.0, k);
    for (double& v : x.v) v = 1 + std::min(std::abs(v), 2.0) / 2;
    const results got = run_forward(aft::dtype::f32, s, x);
    const results exact = evaluate_forward(aft::dtype::f32, s, x).value;
    long double worst = 0;
    for (std::size_t i = 0; i < got.y.size(); ++i) worst = std::max(worst, std::abs(got.y[i] - exact.y[i]));
    MESSAGE("largest error ", static_cast<double>(worst));
    // The contract's eight units in the last place of max|v| = 2, without the error that the loop may have besides.
    CHECK(worst <= 8 * 0x1p-22L);
  }
}
