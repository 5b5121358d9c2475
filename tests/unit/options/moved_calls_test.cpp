// SPDX-License-Identifier: Apache-2.0
// Queries that stand elsewhere than their keys, and padding, where the device has ways of its own: folds of what lies
// outside of windows, products on tensor cores, and sums that are flagged and taken again.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "harness/harness.hpp"
#include "call/moved_calls.hpp"

using namespace aft::test;
using aft::dtype;
using aft::index_t;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Makes rows [first, end) of `width` elements no numbers.
void spoil(std::vector<double>& x, index_t first, index_t end, index_t width) {
  if (first < end) std::fill(x.begin() + first * width, x.begin() + end * width, not_a_number);
}

/// Causal calls of every operator whose last rows are padding.
std::vector<setup> padded_calls(index_t T, index_t first) {
  const setup base{.call = op::full,
                   .B = 3,
                   .Tq = T,
                   .Tk = T + first,
                   .d = 4,
                   .H = 2,
                   .win = {5, 4},
                   .grid = {T + first},
                   .taps = {5},
                   .queries = T,
                   .causal = true,
                   .first_query = first,
                   .query_lengths = true};
  std::vector<setup> all;
  const auto add = [&](op call, bias_form form, aft::outside hidden = aft::outside::zero_bias) {
    all.push_back(base);
    all.back().call = call;
    all.back().bias = form;
    all.back().outside = hidden;
    all.back().seed = static_cast<unsigned>(all.size());
  };
  add(op::full, bias_form::dense_htt);
  add(op::full, bias_form::dense_bhtt);
  add(op::full, bias_form::factorized_htn);
  add(op::local, bias_form::banded_htj);
  add(op::local, bias_form::dense_htt, aft::outside::excluded);
  add(op::simple, bias_form::dense_htt);
  add(op::conv, bias_form::dense_htt);
  return all;
}

}  // namespace

TEST_CASE("moved queries: short sequences") {
  for (const setup& s : moved_calls(20)) check(s);
}

TEST_CASE("moved queries: sequences whose outside is folded") {
  for (const setup& s : moved_calls(110)) check_both(all_types[s.seed % 4], s, random_numbers(s));
}

TEST_CASE("padding: keys that only padding sees, and rows of w, hold NaN") {
  for (index_t T : {20, 100})
    for (index_t first : {0, 7})
      for (setup s : padded_calls(T, first))
        for (bool save : {false, true}) {
          s.save = save;
          numbers x = random_numbers(s);
          for (index_t b = 0; b < s.B; ++b) {
            const index_t length = x.query_lengths[static_cast<std::size_t>(b)];
            const index_t keys = b * s.Tk, seen = length == 0 ? 0 : length + first;
            spoil(x.k, keys + seen, keys + s.Tk, s.key_channels());
            spoil(x.v, keys + seen, keys + s.Tk, s.d);
            for (index_t h = 0; h < s.H && s.bias == bias_form::dense_bhtt; ++h)
              spoil(x.w, (b * s.H + h) * s.Tq + length, (b * s.H + h + 1) * s.Tq, s.Tk);
          }
          if (T == 20) {
            for (dtype type : all_types) check_both(type, s, x);
          } else {
            check_both(all_types[(s.seed + save) % 4], s, x);
          }
        }
}

TEST_CASE("padding: lse and average of a backward call hold NaN") {
  for (index_t T : {20, 100})
    for (const setup& s : padded_calls(T, 0)) {
      const numbers x = random_numbers(s);
      for (dtype type : all_types) {
        if (!concerns(type, s)) continue;
        setup exact = s;
        exact.arithmetic = aft::arithmetic::full;
        results saved = run_forward(type, exact, x);
        for (index_t b = 0; b < s.B; ++b)
          for (index_t t = x.query_lengths[static_cast<std::size_t>(b)]; t < s.Tq; ++t)
            for (auto* of : {&saved.lse, &saved.average}) {
              const auto width = static_cast<index_t>(of->size()) / (s.B * s.Tq);
              std::fill_n(of->begin() + (b * s.Tq + t) * width, width, std::numeric_limits<long double>::quiet_NaN());
            }
        oracle_result oracle = evaluate_backward(type, s, x);
        allow_products(type, s, oracle);
        expect_within(type, s, run_backward(type, s, x, default_executor(), &saved), oracle);
      }
    }
}

TEST_CASE("padding: averages of padding rows move no bit of a gradient") {
  for (setup s : padded_calls(100, 0)) {
    s.causal = false;
    const numbers x = random_numbers(s);
    for (dtype type : {dtype::f32, dtype::f64}) {
      if (!concerns(type, s)) continue;
      const results saved = run_forward(type, s, x);
      results changed = saved;
      for (index_t b = 0; b < s.B; ++b)
        for (index_t t = x.query_lengths[static_cast<std::size_t>(b)]; t < s.Tq; ++t)
          std::fill_n(changed.average.begin() + (b * s.Tq + t) * s.d, s.d, 3.5L);
      CHECK(first_difference(run_backward(type, s, x, default_executor(), &saved),
                             run_backward(type, s, x, default_executor(), &changed)) == "");
    }
  }
}

TEST_CASE("arithmetic: full is as exact as float for bfloat16 data and results") {
  for (bool causal : {false, true}) {
    setup s{.call = op::full, .B = 2, .Tq = 70, .Tk = 70, .d = 40, .H = 2, .causal = causal, .save = false};
    s.arithmetic = aft::arithmetic::full;
    check(s);
    s.save = s.narrow_average = true;
    s.call = op::local;
    s.win = {3, 3};
    check(s);
  }
}
