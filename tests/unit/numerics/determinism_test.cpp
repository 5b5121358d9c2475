// SPDX-License-Identifier: Apache-2.0
// The same bits on every run, for any number of threads and whatever else is in the batch.
#include <doctest/doctest.h>

#include <algorithm>

#include "engines/engines.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// One call per algorithm, large enough that several threads get work.
std::vector<setup> calls() {
  return {
      {.B = 3, .Tq = 130, .Tk = 70, .d = 40, .H = 2},
      {.B = 3, .Tq = 60, .Tk = 130, .d = 36, .H = 4, .bias = bias_form::factorized_htn, .causal = true},
      {.B = 3,
       .Tq = 50,
       .Tk = 50,
       .d = 36,
       .H = 2,
       .bias = bias_form::dense_bhtt,
       .mask = mask_form::batch_pairs,
       .lengths = true},
      {.B = 3, .Tq = 50, .Tk = 50, .d = 8, .H = 2, .k_scale = 60, .w_scale = 60},
      {.B = 2, .Tq = 3, .Tk = 1200, .d = 20},
      {.call = op::local, .B = 3, .Tq = 130, .Tk = 130, .d = 20, .H = 2, .bias = bias_form::banded_htj, .win = {5, 5}},
      {.call = op::local, .B = 3, .Tq = 130, .Tk = 130, .d = 20, .win = {9, 0}, .causal = true, .lengths = true},
      {.call = op::simple, .B = 3, .Tq = 130, .Tk = 130, .d = 40, .hk = 20},
      {.call = op::simple, .B = 3, .Tq = 130, .Tk = 130, .d = 40, .causal = true},
      // Rows of less than a vector: what a neighbour needs, whose keys are far apart or hidden, must not show.
      {.call = op::simple, .B = 3, .Tq = 300, .Tk = 300, .d = 5, .lengths = true, .q_scale = 50, .k_scale = 20},
      {.call = op::simple,
       .B = 3,
       .Tq = 300,
       .Tk = 300,
       .d = 5,
       .lengths = true,
       .q_scale = 50,
       .k_scale = 20,
       .save = false},
      {.call = op::simple, .B = 3, .Tq = 300, .Tk = 300, .d = 5, .q_scale = 50, .k_scale = 60, .save = false},
      {.call = op::simple, .B = 3, .Tq = 300, .Tk = 300, .d = 5, .causal = true, .q_scale = 50, .k_scale = 20},
      {.call = op::simple,
       .B = 3,
       .Tq = 300,
       .Tk = 300,
       .d = 5,
       .causal = true,
       .lengths = true,
       .q_scale = 50,
       .k_scale = 20,
       .save = false},
      {.call = op::conv, .B = 3, .d = 24, .hk = 3, .H = 3, .grid = {90}, .taps = {7}, .causal = true},
      {.call = op::conv, .B = 3, .d = 24, .H = 24, .grid = {9, 11}, .taps = {5, 3}},
      {.call = op::conv,
       .B = 3,
       .d = 8,
       .hk = 2,
       .H = 2,
       .grid = {3, 4, 5},
       .taps = {3, 2, 3},
       .mask = mask_form::keys},
  };
}

template <class T>
std::vector<T> slice(const std::vector<T>& x, index_t B, index_t b) {
  const auto each = static_cast<std::ptrdiff_t>(x.size()) / B;
  return {x.begin() + b * each, x.begin() + (b + 1) * each};
}

}  // namespace

TEST_CASE("determinism: the same bits for any number of threads, and again on the next run") {
  for (const setup& s : calls()) {
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::f64, aft::dtype::bf16}) {
      if (!concerns(type, s)) continue;
      const results forward = run_forward(type, s, x);
      const results backward = run_backward(type, s, x);
      CAPTURE(describe(s, type));
      for (const auto& exec : equivalent_executors()) {
        CHECK(first_difference(forward, run_forward(type, s, x, exec)) == "");
        CHECK(first_difference(backward, run_backward(type, s, x, exec)) == "");
      }
    }
  }
}

TEST_CASE("determinism: a long sequence's window gives the same bits whether all of its keys are kept or a few") {
  if (on_device()) return;  // one thread takes all channels and keeps few keys, several take few channels and keep all
  for (bool causal : {false, true}) {
    const setup s{.call = op::local,
                  .B = 1,
                  .Tq = 8100,
                  .Tk = 8100,
                  .d = 32,
                  .bias = bias_form::banded_tj,
                  .win = {9, 4},
                  .causal = causal};
    const numbers x = random_numbers(s);
    const aft::dtype type = aft::dtype::f32;
    if (!concerns(type, s) || (watched() && causal)) continue;
    const results forward = run_forward(type, s, x, aft::cpu{.threads = 1});
    const results backward = run_backward(type, s, x, aft::cpu{.threads = 1});
    CHECK(first_difference(forward, run_forward(type, s, x, aft::cpu{.threads = 7})) == "");
    CHECK(first_difference(backward, run_backward(type, s, x, aft::cpu{.threads = 7})) == "");
  }
}

TEST_CASE("determinism: gradients of a long sequence's window, its columns kept as a whole or a window's at a time") {
  if (on_device()) return;  // two lane tiles' columns are too many to keep, one's are not
  setup s{.call = op::local, .B = 1, .Tq = 16500, .Tk = 16500, .d = 32, .bias = bias_form::banded_tj, .win = {9, 4}};
  const numbers x = random_numbers(s);
  const results both = run_backward(aft::dtype::f32, s, x);
  numbers half = x;
  for (auto own : {&numbers::q, &numbers::k, &numbers::v, &numbers::dy}) {
    (half.*own).clear();
    for (std::size_t i = 0; i < (x.*own).size(); ++i)
      if (i % 32 < 16) (half.*own).push_back((x.*own)[i]);
  }
  s.d = 16;
  const results one = run_backward(aft::dtype::f32, s, half);
  for (auto own : {&results::dq, &results::dk, &results::dv}) {
    std::size_t changed = 0;
    for (std::size_t i = 0; i < (one.*own).size(); ++i)
      changed += (one.*own)[i] != (both.*own)[i / 16 * 32 + i % 16] ? 1 : 0;
    CHECK(changed == 0);
  }
}

TEST_CASE("determinism: causal rows are the same bits however many rows follow, also under weights that underflow") {
  if (on_device()) return;  // whether tensor cores take a call depends on its size
  for (auto win : {aft::window{13, 0}, aft::window{20, 4}})
    for (auto hidden : {aft::outside::zero_bias, aft::outside::excluded})
      for (double level : {0., -60., -3000.}) {
        setup s{.call = op::local,
                .B = 1,
                .Tq = 45,
                .Tk = 45,
                .d = 4,
                .bias = bias_form::dense_tt,
                .win = win,
                .causal = true,
                .outside = hidden};
        numbers x = random_numbers(s);
        for (double& w : x.w) w += level;
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
          if (!concerns(type, s)) continue;
          const results all = run_forward(type, s, x);
          for (index_t T : {5, 13, 14, 30, 44}) {
            setup fewer = s;
            fewer.Tq = fewer.Tk = T;
            numbers y = x;
            for (auto own : {&numbers::q, &numbers::k, &numbers::v}) (y.*own).resize(static_cast<std::size_t>(T * s.d));
            y.w.clear();
            for (index_t t = 0; t < T; ++t) y.w.insert(y.w.end(), x.w.begin() + t * s.Tk, x.w.begin() + t * s.Tk + T);
            const results some = run_forward(type, fewer, y);
            CAPTURE(T);
            for (auto own : {&results::y, &results::average, &results::lse}) {
              const auto& rows = some.*own;
              CHECK(std::equal(rows.begin(), rows.end(), (all.*own).begin()));
            }
          }
        }
      }
}

TEST_CASE("determinism: a batch element alone gives the bits that it gives within the batch") {
  for (const setup& s : calls()) {
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
      if (!concerns(type, s)) continue;
      const results forward = run_forward(type, s, x);
      const results backward = run_backward(type, s, x);
      for (index_t b = 0; b < s.B; ++b) {
        setup one = s;
        one.B = 1;
        numbers y = x;
        for (auto own : {&numbers::q, &numbers::k, &numbers::v, &numbers::dy}) y.*own = slice(x.*own, s.B, b);
        if (s.bias == bias_form::dense_bhtt) y.w = slice(x.w, s.B, b);
        if (s.mask == mask_form::batch_pairs) y.mask = slice(x.mask, s.B, b);
        if (s.lengths) y.lengths = slice(x.lengths, s.B, b);
        const results forward_one = run_forward(type, one, y);
        const results backward_one = run_backward(type, one, y);
        CAPTURE(describe(s, type));
        CAPTURE(b);
        for (auto own : {&results::y, &results::average, &results::lse}) {
          CHECK(slice(forward.*own, s.B, b) == forward_one.*own);
        }
        for (auto own : {&results::dq, &results::dk, &results::dv}) {
          CHECK(slice(backward.*own, s.B, b) == backward_one.*own);
        }
        if (s.bias == bias_form::dense_bhtt) CHECK(slice(backward.dw, s.B, b) == backward_one.dw);
      }
    }
  }
}

TEST_CASE("determinism: keys and values of another size in a neighbour's lanes do not show") {
  // Two batch elements share a vector. Values of the first are near the least that scale 1 serves, and most of them far
  // below: whether its rows are proven depends on that scale.
  for (index_t heads : {4, 2})
    for (bool wide : {false, true}) {
      setup s{.call = op::conv, .B = 2, .d = 4, .hk = heads, .H = heads, .save = false};
      s.grid = wide ? std::vector<index_t>{60} : std::vector<index_t>{4, 5};
      s.taps = wide ? std::vector<index_t>{3} : std::vector<index_t>{3, 3};
      numbers x = random_numbers(s);
      const std::size_t half = x.v.size() / 2, keys = x.k.size() / 2;
      for (std::size_t i = 0; i < half; ++i) x.v[i] *= 1e-12;
      for (std::size_t i = 0; i < 4; ++i) x.v[i] = 1.5e-6;
      for (std::size_t i = 0; i < static_cast<std::size_t>(heads); ++i) x.k[i] = -20;
      const results plain = run_forward(aft::dtype::f32, s, x), gradients = run_backward(aft::dtype::f32, s, x);
      for (bool of_values : {false, true}) {
        numbers y = x;
        for (std::size_t i = half; of_values && i < 2 * half; ++i) y.v[i] *= 1e7;
        for (std::size_t i = keys; !of_values && i < 2 * keys; ++i) y.k[i] += 50;
        CAPTURE(describe(s, aft::dtype::f32));
        CAPTURE(of_values);
        const results other = run_forward(aft::dtype::f32, s, y), others = run_backward(aft::dtype::f32, s, y);
        for (auto own : {&results::y, &results::average, &results::lse})
          CHECK(slice(other.*own, 2, 0) == slice(plain.*own, 2, 0));
        for (auto own : {&results::dq, &results::dk, &results::dv})
          CHECK(slice(others.*own, 2, 0) == slice(gradients.*own, 2, 0));
      }
    }
}

TEST_CASE("determinism: a key that is far away, or none, in a neighbour's lanes does not show") {
  // Rows that see it have their logits divided by e^base, those of the first batch element beside them have base 0.
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<setup> shapes = {
      {.B = 2, .Tq = 12, .Tk = 12, .d = 2},
      {.B = 2, .Tq = 40, .Tk = 40, .d = 5, .causal = true},
      {.call = op::local, .B = 2, .Tq = 40, .Tk = 40, .d = 2, .win = {3, 3}},
      {.call = op::simple, .B = 2, .Tq = 40, .Tk = 40, .d = 2},
      {.call = op::simple, .B = 2, .Tq = 40, .Tk = 40, .d = 3, .causal = true},
      {.call = op::conv, .B = 2, .d = 2, .grid = {40}, .taps = {5}},
  };
  for (const setup& plain : shapes)
    for (bool save : {true, false})
      for (double far : {5e5, -5e5, infinity}) {
        setup s = plain;
        s.save = save;
        const numbers x = random_numbers(s);
        numbers y = x;
        y.k[x.k.size() - 1] = far;
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
          if (!concerns(type, s)) continue;
          CAPTURE(describe(s, type));
          CAPTURE(far);
          const results forward = run_forward(type, s, x), other = run_forward(type, s, y);
          const results backward = run_backward(type, s, x), others = run_backward(type, s, y);
          for (auto own : {&results::y, &results::average, &results::lse})
            CHECK(slice(other.*own, 2, 0) == slice(forward.*own, 2, 0));
          for (auto own : {&results::dq, &results::dk, &results::dv})
            CHECK(slice(others.*own, 2, 0) == slice(backward.*own, 2, 0));
        }
      }
}

TEST_CASE("determinism: causal rows do not change by a bit whatever the future holds") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (op call : {op::full, op::local, op::simple, op::conv})
    for (auto form : {bias_form::dense_tt, bias_form::factorized_tn, bias_form::banded_tj}) {
      if (form == bias_form::banded_tj && call != op::local) continue;
      if (form != bias_form::dense_tt && (call == op::simple || call == op::conv)) continue;
      const index_t T = 70, d = 5;
      const setup s{.call = call,
                    .B = 2,
                    .Tq = T,
                    .Tk = T,
                    .d = d,
                    .bias = form,
                    .win = {6, 6},
                    .grid = {T},
                    .taps = {9},
                    .causal = true};
      const numbers x = random_numbers(s);
      for (auto type : {aft::dtype::f32, aft::dtype::f64, aft::dtype::bf16}) {
        if (!concerns(type, s)) continue;
        const results before = run_forward(type, s, x);
        for (index_t now : {1, 15, 16, 17, 40, 69})
          for (double future : {nan, infinity, -infinity, 1e30, -1e30, 80.0}) {
            numbers y = x;
            for (auto which : {&numbers::k, &numbers::v})
              for (std::size_t i = 0; i < y.k.size(); ++i) {
                if (static_cast<index_t>(i) / d % T >= now) (y.*which)[i] = future;
              }
            const results after = run_forward(type, s, y);
            std::size_t changed = 0;
            for (std::size_t i = 0; i < before.y.size(); ++i) {
              if (static_cast<index_t>(i) / d % T >= now) continue;
              changed +=
                  before.y[i] != after.y[i] || before.lse[i] != after.lse[i] || before.average[i] != after.average[i];
            }
            CAPTURE(describe(s, type));
            CAPTURE(now);
            CAPTURE(future);
            CHECK(changed == 0);
          }
      }
    }
}
