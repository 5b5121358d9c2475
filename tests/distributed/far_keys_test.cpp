// SPDX-License-Identifier: Apache-2.0
// Keys and values of any size far from the rows that see them, where one sum stands for many keys.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "call/cases.hpp"
#include "engines/own_engine.hpp"
#include "split_call.hpp"

using namespace aft::test;
using aft::dtype;
using aft::index_t;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr dtype types[] = {dtype::f32, dtype::bf16, dtype::f64};

/// Operators that have far keys, causal and not.
std::vector<setup> calls_with_far_keys() {
  std::vector<setup> all;
  for (const bool causal : {false, true}) {
    for (const op call : {op::simple, op::local, op::conv}) {
      setup s{.call = call, .B = 2, .Tq = 40, .Tk = 40, .d = 6, .hk = 3, .H = 3, .win = {3, 2}};
      s.grid = {40};
      s.taps = {4};
      s.queries = 40;
      s.causal = causal;
      s.bias = bias_form::dense_htt;
      all.push_back(s);
    }
  }
  return all;
}

/// Calls f(setup, numbers), which may change the numbers, and checks the call in all types over three ranks.
template <class F>
void check_with(const F& change) {
  for (const setup& s : calls_with_far_keys()) {
    numbers x = random_numbers(s);
    change(s, x);
    for (const dtype type : types) check_split(type, s, x, {{9, 11, 20}, {9, 11, 20}});
  }
}

/// f(b, s, c) for every key.
template <class F>
void set_keys(const setup& raw, numbers& x, const F& f) {
  const setup s = completed(raw);
  for (index_t b = 0, i = 0; b < s.B; ++b)
    for (index_t t = 0; t < s.Tk; ++t)
      for (index_t c = 0; c < s.hk; ++c, ++i) x.k[static_cast<std::size_t>(i)] = f(b, t, c);
}

}  // namespace

TEST_CASE("far keys of any size: their logarithm would lose them") {
  for (const double size : {1e3, 1e6, 1e8, 1e30, 3e38, -1e6, -3e38}) {
    check_with([&](const setup& s, numbers& x) {
      // All equal: each key has the same weight, however large it is.
      set_keys(s, x, [&](index_t, index_t, index_t) { return size; });
    });
  }
}

TEST_CASE("far keys far above and far below the near ones") {
  for (const double step : {20., 60., 300., 1e4, 1e37}) {
    for (const bool rising : {false, true}) {
      check_with([&](const setup& s, numbers& x) {
        set_keys(s, x,
                 [&](index_t, index_t t, index_t) { return step * static_cast<double>(rising ? t : 40 - t) / 8; });
      });
    }
  }
}

TEST_CASE("a maximum that another rank has does not cost the digits of the others' keys") {
  check_with([](const setup& s, numbers& x) {
    // In the second channel the largest key of all is the last, which causal rows before it must not feel.
    set_keys(s, x, [](index_t, index_t t, index_t c) {
      return c == 1 && t == 39 ? 1e6 : 0.1 * static_cast<double>(t % 7) - (c == 2 && t < 9 ? 1e6 : 0);
    });
  });
}

TEST_CASE("values near the ends of the range, and zeros") {
  for (const double size : {1e37, 1e-30, 0.}) {
    check_with([&](const setup&, numbers& x) {
      for (double& v : x.v) v *= size;
    });
  }
}

TEST_CASE("hidden far keys may hold anything, and hide all of a rank") {
  check_with([](const setup& s, numbers& x) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (index_t b = 0; b < s.B; ++b) {
      for (index_t t = 0; t < 9; ++t) {
        for (index_t c = 0; c < s.hk; ++c) x.k[static_cast<std::size_t>((b * 40 + t) * s.hk + c)] = -inf;
        for (index_t c = 0; c < s.d; ++c) x.v[static_cast<std::size_t>((b * 40 + t) * s.d + c)] = nan;
      }
    }
  });
  for (setup s : calls_with_far_keys()) {
    s.lengths = true;
    numbers x = random_numbers(s);
    // Nothing behind is seen: of the first element no key of the last rank, of the second no key at all.
    x.lengths = {15, 0};
    for (index_t t = 15; t < 40; ++t)
      x.k[static_cast<std::size_t>(t * s.hk)] = x.v[static_cast<std::size_t>(t * s.d)] = inf;
    for (const dtype type : types) check_split(type, s, x, {{9, 11, 20}, {9, 11, 20}});
  }
}

TEST_CASE("NaN and infinity reach the rows that see them and no others") {
  for (const double strange : {std::numeric_limits<double>::quiet_NaN(), inf}) {
    check_with([&](const setup& s, numbers& x) { x.k[static_cast<std::size_t>(14 * s.hk + 1)] = strange; });
    check_with([&](const setup& s, numbers& x) { x.v[static_cast<std::size_t>(14 * s.d + 1)] = strange; });
  }
}

TEST_CASE("many far keys beside few near ones") {
  // More than one call takes at once, and a sum that is far from 1.
  setup s{.call = op::simple, .B = 1, .Tq = 12, .Tk = 5000, .d = 4, .hk = 2};
  for (const double above : {0., 5., 12.}) {
    numbers x = random_numbers(s);
    for (index_t i = 0; i < 12 * s.hk; ++i) x.k[static_cast<std::size_t>(i)] += above;
    for (const dtype type : types) {
      check_split(type, s, x, {{2, 0, 10}, {12, 2500, 2488}});
      check_split(type, s, x, {{12, 0, 0}, {0, 12, 4988}});
    }
  }
}

TEST_CASE("whole vectors of channels, keys that heads share, results in place of q, rows that are given") {
  for (setup s : calls_with_far_keys()) {
    s.d = 48;
    s.H = 3;
    for (const index_t hk : {48, 6}) {
      s.hk = hk;
      for (const bool save : {false, true}) {
        s.save = s.in_place = save;
        for (const dtype type : types) check_split(type, s, random_numbers(s), {{9, 11, 20}, {9, 11, 20}});
      }
    }
  }
}

TEST_CASE(
    "averages of values that no four of may be added, of largest numbers, and of those below the normal numbers") {
  for (const setup& s : calls_with_far_keys()) {
    numbers x = random_numbers(s);
    for (const dtype type : types) {
      const double largest = type == dtype::f64    ? std::numeric_limits<double>::max()
                             : type == dtype::bf16 ? 0x1.fep127
                                                   : static_cast<double>(std::numeric_limits<float>::max());
      const double least = type == dtype::f64 ? 1e-310 : 1e-40;
      const auto check = [&](const char* words) {
        const split_results got = split_forward(type, s, x, {{9, 11, 20}, {9, 11, 20}});
        expect_within(type, s, got.joint, evaluate_forward(type, s, x), words);
      };
      for (const double size : {0.97 * largest, least}) {
        for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] = (i % 5 == 0 ? 0.5 : 1) * (i % 7 == 0 ? -size : size);
        check("values at the ends of the range");
      }
      // Their average is that number, which rounding must not take past the range.
      for (double& v : x.v) v = largest;
      check("the largest numbers");
    }
  }
}

TEST_CASE("sums for far keys may leave the range where each key's gradient does not") {
  setup s{.call = op::local, .B = 1, .Tq = 12, .Tk = 5000, .d = 4, .hk = 2, .win = {3, 2}};
  s.bias = bias_form::dense_htt;
  numbers x = random_numbers(s);
  // The few keys within reach of a row weigh as much as all others, and their values lie apart.
  for (std::size_t i = 0; i < x.k.size(); ++i) x.k[i] += i < static_cast<std::size_t>(15 * s.hk) ? 6 : 0;
  for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] += i < static_cast<std::size_t>(15 * s.d) ? -25 : 25;
  for (double& dy : x.dy) dy = 1.2e37 * (1 + 0.1 * dy);
  for (const dtype type : {dtype::f32, dtype::bf16}) check_split(type, s, x, {{12, 0}, {12, 4988}});
}

TEST_CASE("gradients of keys whose values lie farther apart than any number is large") {
  for (const setup& s : calls_with_far_keys()) {
    for (const dtype type : types) {
      numbers x = random_numbers(s);
      set_keys(s, x, [](index_t, index_t, index_t) { return 0.; });
      const double size = type == dtype::f64 ? 0x1.cp1023 : 0x1.cp127;
      for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] = i / static_cast<std::size_t>(s.d) % 4 == 3 ? -size : size;
      for (double& dy : x.dy) dy = 0x1p-10 * (1 + 0.1 * dy);
      check_split(type, s, x, {{9, 11, 20}, {9, 11, 20}});
    }
  }
}

TEST_CASE("values near the end of double leave their sums room") {
  for (const setup& s : calls_with_far_keys()) {
    numbers x = random_numbers(s);
    for (double& v : x.v) v = 1.5e308;
    for (double& dy : x.dy) dy = 4 + 0.1 * dy;
    check_split(dtype::f64, s, x, {{9, 11, 20}, {9, 11, 20}});
  }
}

TEST_CASE("what one batch element holds does not change the bits of another's gradients") {
  for (setup s : calls_with_far_keys()) {
    // Fewer channels than lanes: a vector has those of both.
    s.d = 2;
    s.hk = s.H = 1;
    numbers x = random_numbers(s);
    const split_lengths cut{{9, 11, 20}, {9, 11, 20}};
    const results calm = split_backward(dtype::f32, s, x, cut).joint;
    x.dy.back() = std::numeric_limits<double>::quiet_NaN();
    const results other = split_backward(dtype::f32, s, x, cut).joint;
    for (const auto of : {&results::dq, &results::dk, &results::dv}) {
      const std::vector<long double>&before = calm.*of, &after = other.*of;
      const auto half = static_cast<std::ptrdiff_t>(before.size() / 2);
      CHECK(std::equal(before.begin(), before.begin() + half, after.begin()));
    }
  }
}

TEST_CASE("a gate that takes a part of a row out of the range, and not the row") {
  // Three cells of a grid on two ranks; the first sees its own large value by a filter and two as large as far ones.
  const double size = 3e38;
  setup s{.call = op::conv, .B = 1, .Tq = 3, .Tk = 3, .d = 1, .hk = 1, .H = 1};
  s.grid = {3, 1};
  s.taps = {1, 1};
  s.gate_fn = aft::gate::identity;
  s.save = false;
  numbers x = random_numbers(s);
  x.q = {4, 4, 4};
  x.k = {0, -0.5, -0.5};
  x.v = {size, -size, -size};
  x.r = {0.25};
  const split_results got = split_forward(dtype::f32, s, x, {{1, 2}, {1, 2}});
  CHECK(got.thrown == std::vector<std::string>{"", ""});
  const double own = std::exp(0.25), others = 2 * std::exp(-0.5);
  const double y = 4 * size * (own - others) / (own + others);
  // Eight units of the terms' size.
  CHECK(std::fabs(static_cast<double>(got.joint.y[0]) - y) <= 8 * 0x1p-24 * 4 * size);
}
