// SPDX-License-Identifier: Apache-2.0
// AFT-conv where channels share keys and filters: what belongs to such a class is folded once for all its channels,
// forward and backward, two batch elements at a time.
#include <doctest/doctest.h>

#include <limits>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Classes of 4 to 48 channels, such that vectors of 4, 8 and 16 lanes hold parts of one, one, and several.
std::vector<setup> classes() {
  const setup base{.call = op::conv, .B = 3, .grid = {3, 5}, .taps = {3, 4}};
  std::vector<setup> all;
  for (auto [d, hk, H] : {std::array<index_t, 3>{16, 4, 4}, {24, 3, 3}, {48, 2, 1}, {40, 5, 5}, {72, 6, 3}}) {
    all.push_back(base);
    all.back().d = d;
    all.back().hk = hk;
    all.back().H = H;
  }
  return all;
}

/// The index of (position, channel) of a tensor of `channels`, in batch element b.
std::size_t at(const setup& s, index_t channels, index_t b, index_t t, index_t c) {
  return static_cast<std::size_t>((b * completed(s).Tk + t) * channels + c);
}

}  // namespace

TEST_CASE("conv classes: sizes, orders of the grid, batches of 1 to 3, hidden keys") {
  unsigned seed = 2000;
  for (setup s : classes())
    for (index_t B : {1, 2, 3}) {
      s.B = B;
      s.seed = ++seed;
      check(s);
      s.lengths = true;
      s.mask = mask_form::batch_keys;
      s.outside = outside::excluded;
      check(s);
    }
  check({.call = op::conv, .B = 2, .d = 36, .hk = 3, .H = 3, .grid = {19}, .taps = {5}, .causal = true, .seed = 2101});
  check({.call = op::conv, .B = 2, .d = 36, .hk = 9, .H = 9, .grid = {2, 3, 4}, .taps = {3, 3, 3}, .seed = 2102});
  // More classes than a vector has lanes.
  check({.call = op::conv, .B = 2, .d = 80, .hk = 20, .H = 20, .grid = {9}, .taps = {4}, .seed = 2103});
}

TEST_CASE("conv classes: channels of one class whose numbers lie far apart") {
  unsigned seed = 2200;
  for (setup s : classes()) {
    s.seed = ++seed;
    numbers x = random_numbers(s);
    for (std::size_t i = 0; i < x.v.size(); ++i) {
      const auto c = static_cast<index_t>(i) % s.d;
      // Rising and falling sizes, so that a class's unit is raised late as well as early; every seventh channel is 0.
      x.v[i] *= c % 7 == 6 ? 0 : std::ldexp(1, static_cast<int>(c % 5) * 12 - 24);
      x.dy[i] *= c % 11 == 3 ? 0 : std::ldexp(1, 20 - static_cast<int>(c % 3) * 20);
    }
    check_both(aft::dtype::f32, s, x);
    check_both(aft::dtype::f64, s, x);
  }
}

TEST_CASE("conv classes: a class that is summed by definition beside classes that are not") {
  unsigned seed = 2300;
  for (setup s : classes())
    for (double far : {90., 3000., 1e5}) {
      s.seed = ++seed;
      numbers x = random_numbers(s);
      const index_t T = completed(s).Tk;
      for (index_t b = 0; b < s.B; b += 2)
        for (index_t t = 0; t < T; ++t) x.k[at(s, s.hk, b, t, 1)] *= far;
      const std::size_t taps = x.r.size() / static_cast<std::size_t>(s.H);
      for (std::size_t j = 0; j < taps; ++j) x.r[(static_cast<std::size_t>(s.H) - 1) * taps + j] *= far;
      for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, x);
    }
}

TEST_CASE("conv classes: what is hidden may hold NaN, and a taps' -inf hides") {
  unsigned seed = 2400;
  for (setup s : classes()) {
    s.seed = ++seed;
    s.lengths = true;
    numbers x = random_numbers(s);
    const index_t T = completed(s).Tk;
    for (index_t b = 0; b < s.B; ++b) {
      x.lengths[static_cast<std::size_t>(b)] = T - 3 * b;
      for (index_t t = T - 3 * b; t < T; ++t) {
        for (index_t c = 0; c < s.d; ++c) x.v[at(s, s.d, b, t, c)] = c % 2 == 0 ? infinity : std::nan("");
        for (index_t c = 0; c < s.hk; ++c) x.k[at(s, s.hk, b, t, c)] = std::nan("");
      }
      x.k[at(s, s.hk, b, 0, 0)] = -infinity;
      for (index_t c = 0; c < s.d / s.hk; ++c) x.v[at(s, s.d, b, 0, c)] = std::nan("");
    }
    for (std::size_t j = 0; j < x.r.size(); j += 3) x.r[j] = -infinity;
    for (auto type : {aft::dtype::f32, aft::dtype::f64, aft::dtype::bf16}) check_both(type, s, x);
    s.outside = outside::excluded;
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, x);
  }
}

TEST_CASE("conv classes: an infinite gradient and numbers at the ends of the range") {
  unsigned seed = 2500;
  for (setup s : classes()) {
    s.seed = ++seed;
    numbers x = random_numbers(s);
    x.dy[at(s, s.d, 0, 2, 1)] = infinity;
    x.v[at(s, s.d, s.B - 1, 4, s.d - 1)] = std::nan("");
    check_both(aft::dtype::f32, s, x);
    numbers big = random_numbers(s);
    for (double& v : big.v) v = std::copysign(1e38, v);
    for (double& dy : big.dy) dy *= 1e-3;
    check_both(aft::dtype::f32, s, big);
    numbers small = random_numbers(s);
    for (double& v : small.v) v *= 1e-30;
    for (double& dy : small.dy) dy *= 1e-12;
    check_both(aft::dtype::f32, s, small);
  }
}

TEST_CASE("conv classes: the same bits for every batch, executor and choice of gradients") {
  for (setup s : classes()) {
    s.grid = {4, 7};
    s.B = 5;
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
      const results whole = run_backward(type, s, x);
      CAPTURE(describe(completed(s), type));
      for (const auto& exec : equivalent_executors())
        CHECK(first_difference(whole, run_backward(type, s, x, exec)) == "");
      setup one = s;
      one.B = 1;
      for (index_t b = 0; b < s.B; ++b) {
        numbers y = x;
        for (auto own : {&numbers::q, &numbers::k, &numbers::v, &numbers::dy}) {
          const auto each = static_cast<std::ptrdiff_t>((x.*own).size()) / s.B;
          y.*own = {(x.*own).begin() + b * each, (x.*own).begin() + (b + 1) * each};
        }
        const results alone = run_backward(type, one, y);
        for (auto own : {&results::dq, &results::dk, &results::dv}) {
          const auto each = static_cast<std::ptrdiff_t>((whole.*own).size()) / s.B;
          const std::vector<long double> part((whole.*own).begin() + b * each, (whole.*own).begin() + (b + 1) * each);
          CHECK((alone.*own) == part);
        }
      }
    }
  }
}
