// SPDX-License-Identifier: Apache-2.0
// Many keys of one value, as a projection gives them whose weights are still 0: where a sum adds one number again and
// again, every addition rounds it in the same direction, while the naive loop weighs all of them by exactly 1.
#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// Every operator, its bias 0 for all pairs.
std::vector<setup> operators(index_t T) {
  std::vector<setup> all;
  for (bool causal : {false, true})
    for (auto [call, form] : {std::pair<op, bias_form>{op::full, bias_form::dense_tt},
                              {op::local, bias_form::banded_tj},
                              {op::simple, bias_form::dense_tt},
                              {op::conv, bias_form::dense_tt}}) {
      setup s{.call = call, .B = 1, .Tq = T, .Tk = T, .d = 2, .bias = form, .win = {5, 4}, .grid = {T}, .taps = {7}};
      s.causal = causal;
      s.gate_fn = aft::gate::none;
      all.push_back(s);
    }
  return all;
}

/// Keys of one value, and values near 1.5 with so few digits that the naive loop adds them exactly.
numbers equal_keys(const setup& s, double key) {
  numbers x = random_numbers(s);
  for (double& k : x.k) k = key;
  for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] = 1.5 + static_cast<double>(i * 7 % 16) / 64;
  for (std::vector<double>* bias : {&x.w, &x.u, &x.f, &x.r})
    for (double& w : *bias) w = 0;
  return x;
}

// The weights of the first four have digits that a sum rounds by nearly half a unit each time; the others are beyond
// the range of float's exponentials, where weights are relative to the largest key.
constexpr double keys[] = {1, 15.3613319, 36.2907867, -0.7, -300, 1e4};

}  // namespace

TEST_CASE("sums of equal keys are as exact as those of ones") {
  for (aft::dtype type : {aft::dtype::f32, aft::dtype::f64})
    for (index_t T : {140, 500})
      for (const setup& s : operators(T))
        for (double key : keys) check_forward(type, s, equal_keys(s, key));
}

TEST_CASE("sums of simple are where one key is followed by many of one larger value, and where a few are smaller") {
  setup s{.call = op::simple, .B = 1, .Tq = 1, .d = 2};
  s.gate_fn = aft::gate::none;
  for (index_t T : {index_t{128}, index_t{700}, index_t{20000}}) {
    s.Tk = T;
    for (double key : {1., 15.3613319, 36.2907867, 2.3, 5.77}) {
      numbers x = equal_keys(s, key);
      x.k[0] = x.k[1] = 0.3;
      check_forward(aft::dtype::f32, s, x);
      for (std::size_t i = 0; i < x.k.size(); i += 20) x.k[i] = x.k[i + 1] = 0;
      check_forward(aft::dtype::f32, s, x);
    }
  }
  s.causal = true;
  s.Tq = s.Tk = 500;
  for (double key : {1., 15.3613319, 36.2907867, 2.3, 5.77}) {
    numbers x = equal_keys(s, key);
    x.k[0] = x.k[1] = 0.3;
    check_forward(aft::dtype::f32, s, x);
  }
}

TEST_CASE("sums of equal keys in planes are") {
  setup s{.call = op::conv, .B = 1, .d = 2, .grid = {20, 20}, .taps = {11, 11}};
  s.gate_fn = aft::gate::none;
  for (index_t channels : {index_t{2}, index_t{1}}) {
    s.hk = channels;
    for (double key : keys) check_forward(aft::dtype::f32, s, equal_keys(s, key));
  }
}

TEST_CASE("sums of equal keys are exact beside a bias of one value, a hidden key and a larger one") {
  setup s{.call = op::full, .B = 1, .Tq = 3, .Tk = 700, .d = 2, .bias = bias_form::dense_tt};
  s.gate_fn = aft::gate::none;
  numbers x = equal_keys(s, 1.3);
  for (double& w : x.w) w = 0.7;
  check_forward(aft::dtype::f32, s, x);
  s.lengths = true;
  x.lengths = {650};
  check_forward(aft::dtype::f32, s, x);
  s.call = op::simple;
  s.mask = mask_form::batch_keys;
  x.mask.assign(700, 1);
  for (std::size_t hidden : std::initializer_list<std::size_t>{0, 1, 2, 130, 256}) x.mask[hidden] = 0;
  check_forward(aft::dtype::f32, s, x);
  for (bool causal : {false, true}) {
    s.causal = causal;
    s.Tq = s.Tk;
    x = equal_keys(s, 1.3);
    x.lengths = {700};
    x.mask.assign(700, 1);
    x.k[2 * 400] = 4200;  // leaves the range of float, and with it the unit
    check_forward(aft::dtype::f32, s, x);
  }
}

TEST_CASE("sums of equal keys are exact in a stream of simple, however it is cut") {
  setup s{.call = op::simple, .B = 1, .Tq = 500, .Tk = 500, .d = 2};
  s.causal = true;
  s.gate_fn = aft::gate::none;
  for (std::vector<index_t> cuts : {std::vector<index_t>{500}, {1, 3, 96, 300, 100}}) {
    s.cuts = cuts;
    for (double key : keys) {
      numbers x = equal_keys(s, key);
      check_forward(aft::dtype::f32, s, x);
      x.k[2 * 300] = key + 2000;  // makes the reference special, whose weights have no unit
      check_forward(aft::dtype::f32, s, x);
      x = equal_keys(s, key);
      x.k[0] = x.k[1] = 0.3;  // most keys weigh no power of two
      check_forward(aft::dtype::f32, s, x);
    }
  }
}

TEST_CASE("the lse and the gradients of equal keys are those of the formula") {
  for (const setup& s : operators(140)) {
    setup with_gate = s;
    with_gate.gate_fn = aft::gate::sigmoid;
    check_both(aft::dtype::f32, with_gate, equal_keys(with_gate, 15.3613319));
  }
}
