// SPDX-License-Identifier: Apache-2.0
// Gradients against the slopes of the library's own forward calls, and with lse and average given or not.
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;

namespace {

/// The loss whose gradient the backward calls give: sum of dy y.
double loss(const setup& s, const numbers& x) {
  const results r = run_forward(aft::dtype::f64, s, x);
  long double sum = 0;
  for (std::size_t i = 0; i < r.y.size(); ++i) sum += r.y[i] * static_cast<long double>(x.dy[i]);
  return static_cast<double>(sum);
}

/// A bound of the terms of the loss and of its slopes.
double size_of_loss(const numbers& x) {
  double v = 1, q = 1, dy = 0;
  for (double e : x.v) v = std::max(v, std::abs(e));
  for (double e : x.q) q = std::max(q, std::abs(e));
  for (double e : x.dy) dy += std::abs(e);
  return v * q * dy;
}

void expect_slopes(const setup& s) {
  if (!concerns(aft::dtype::f64, s)) return;
  const numbers x = random_numbers(s);
  const results g = run_backward(aft::dtype::f64, s, x);
  const long double bound = difference_bound(size_of_loss(x));
  const std::pair<std::vector<double> numbers::*, const std::vector<long double>*> inputs[] = {
      {&numbers::q, &g.dq}, {&numbers::k, &g.dk}, {&numbers::v, &g.dv}, {&numbers::w, &g.dw},
      {&numbers::u, &g.du}, {&numbers::f, &g.df}, {&numbers::r, &g.dr}};
  for (const auto& pair : inputs) {
    const auto input = pair.first;
    const std::vector<long double>& gradient = *pair.second;
    REQUIRE((x.*input).size() == gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      numbers y = x;
      (y.*input)[i] = (x.*input)[i] + difference_step;
      const double above = loss(s, y);
      (y.*input)[i] = (x.*input)[i] - difference_step;
      const double slope = (above - loss(s, y)) / (2 * difference_step);
      CAPTURE(describe(completed(s), aft::dtype::f64));
      CAPTURE(i);
      CAPTURE(slope);
      CAPTURE(gradient[i]);
      CHECK(std::abs(slope - gradient[i]) <= bound);
    }
  }
}

}  // namespace

TEST_CASE("gradients: slopes of full for every bias form and gate") {
  unsigned seed = 1;
  for (auto form : {bias_form::dense_tt, bias_form::dense_htt, bias_form::dense_bhtt, bias_form::factorized_tn,
                    bias_form::factorized_htn, bias_form::factorized_mixed})
    for (auto g : {gate::none, gate::identity, gate::sigmoid, gate::tanh, gate::silu}) {
      expect_slopes({.B = 2, .Tq = 4, .Tk = 5, .d = 4, .hk = 2, .H = 2, .bias = form, .gate_fn = g, .seed = ++seed});
    }
}

TEST_CASE("gradients: slopes of causal, masked and windowed calls") {
  unsigned seed = 100;
  for (auto form : {bias_form::dense_htt, bias_form::factorized_htn, bias_form::banded_htj})
    for (bool causal : {false, true})
      for (auto out : {outside::zero_bias, outside::excluded}) {
        expect_slopes({.call = op::local,
                       .B = 2,
                       .Tq = 7,
                       .Tk = 7,
                       .d = 4,
                       .hk = 2,
                       .H = 2,
                       .bias = form,
                       .win = {2, 1},
                       .causal = causal,
                       .mask = mask_form::pairs,
                       .outside = out,
                       .seed = ++seed});
      }
  expect_slopes({.call = op::simple, .B = 2, .Tq = 5, .Tk = 6, .d = 4, .hk = 2, .lengths = true});
  expect_slopes({.call = op::simple, .B = 2, .Tq = 6, .Tk = 6, .d = 3, .causal = true});
}

TEST_CASE("gradients: slopes of conv on one, two and three axes") {
  expect_slopes({.call = op::conv, .B = 2, .d = 4, .hk = 2, .H = 2, .grid = {7}, .taps = {4}});
  expect_slopes({.call = op::conv, .B = 2, .d = 4, .hk = 2, .H = 2, .grid = {7}, .taps = {3}, .causal = true});
  expect_slopes({.call = op::conv, .B = 1, .d = 4, .H = 4, .grid = {3, 4}, .taps = {3, 2}});
  expect_slopes({.call = op::conv, .B = 1, .d = 2, .grid = {2, 3, 2}, .taps = {3, 3, 3}, .outside = outside::excluded});
}

TEST_CASE("gradients: lse and average that a forward call wrote serve as well as recomputed ones") {
  for (op call : {op::full, op::local, op::simple, op::conv})
    for (bool causal : {false, true})
      for (bool narrow : {false, true})
        for (double scale : {1., 20.}) {
          const setup given{.call = call,
                            .B = 2,
                            .Tq = 40,
                            .Tk = 40,
                            .d = 6,
                            .hk = 2,
                            .H = 2,
                            .win = {4, 4},
                            .grid = {40},
                            .taps = {9},
                            .causal = causal,
                            .k_scale = scale,
                            .w_scale = scale,
                            .narrow_average = narrow};
          setup recomputed = given;
          recomputed.save = false;
          const numbers x = random_numbers(given);
          for (auto type : all_types) {
            check_backward(type, given, x);
            check_backward(type, recomputed, x);
          }
        }
}

TEST_CASE("gradients: many terms, where cancellation would show") {
  for (bool save : {false, true}) {
    check({.B = 8, .Tq = 60, .Tk = 60, .d = 32, .H = 1, .bias = bias_form::dense_tt, .save = save});
    check({.B = 4, .Tq = 60, .Tk = 60, .d = 8, .H = 1, .bias = bias_form::factorized_tn, .n = 20, .save = save});
    check({.call = op::conv, .B = 8, .d = 16, .hk = 1, .grid = {64}, .taps = {9}, .save = save});
    check({.call = op::simple, .B = 2, .Tq = 400, .Tk = 400, .d = 2, .causal = true, .save = save});
  }
}

TEST_CASE("gradients: values far from 0 and close to each other, from which dk takes differences") {
  for (double offset : {30.0, 1000.0})
    for (bool save : {true, false}) {
      setup s{.B = 2, .Tq = 70, .Tk = 66, .d = 16};
      s.save = save;
      numbers x = random_numbers(s);
      for (double& v : x.v) v += offset;
      for (auto type : {aft::dtype::f32, aft::dtype::bf16}) check_backward(type, s, x);
    }
}
