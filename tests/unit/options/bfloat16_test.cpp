// SPDX-License-Identifier: Apache-2.0
// Calls on bfloat16 data that are large enough for products of bfloat16 numbers.
#include <doctest/doctest.h>

#include <cmath>

#include "engines/engines.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::dtype;
using aft::index_t;

namespace {

void check_call(const setup& s) {
  const numbers x = random_numbers(s);
  check_forward(dtype::bf16, s, x);
  check_backward(dtype::bf16, s, x);
}

/// More than a tile of rows, of keys, and of channels.
constexpr index_t T = 140, d = 144;

setup long_call(op call, bias_form form, unsigned seed) {
  return {.call = call, .B = 2, .Tq = T, .Tk = T, .d = 32, .H = 2, .bias = form, .seed = seed, .save = false};
}

}  // namespace

TEST_CASE("bfloat16: dense and factorized biases, causal or not, with lengths and masks of keys") {
  unsigned seed = 0;
  for (auto form : {bias_form::dense_tt, bias_form::dense_htt, bias_form::dense_bhtt, bias_form::factorized_htn})
    for (bool causal : {false, true})
      for (auto mask : {mask_form::none, mask_form::batch_keys}) {
        setup s = long_call(op::full, form, ++seed);
        s.causal = causal;
        s.mask = mask;
        s.lengths = seed % 3 == 0;
        check_call(s);
      }
}

TEST_CASE("bfloat16: more queries than keys, and keys than queries; channels for more than a block; shared keys") {
  unsigned seed = 100;
  for (auto [queries, keys] : {std::pair<index_t, index_t>{T, 70}, {70, T}, {1, 64}})
    for (bool causal : {false, true}) {
      setup s = long_call(op::full, bias_form::dense_htt, ++seed);
      s.Tq = queries;
      s.Tk = keys;
      s.d = d;
      s.hk = d / 4;
      s.causal = causal;
      check_call(s);
    }
}

TEST_CASE("bfloat16: windows and filters that leave tiles of keys outside") {
  unsigned seed = 200;
  for (auto form : {bias_form::banded_htj, bias_form::dense_htt, bias_form::factorized_htn})
    for (bool causal : {false, true}) {
      setup s = long_call(op::local, form, ++seed);
      s.B = 1;
      s.Tq = s.Tk = 300;
      s.win = seed % 2 == 0 ? aft::window{20, 11} : aft::window{60, -30};
      s.causal = causal;
      s.lengths = causal;
      check_call(s);
    }
  for (bool causal : {false, true}) {
    setup s = long_call(op::conv, bias_form::dense_htt, ++seed);
    s.B = 1;
    s.grid = {260};
    s.taps = {9};
    s.causal = causal;
    check_call(s);
  }
  setup s = long_call(op::conv, bias_form::dense_htt, ++seed);
  s.grid = {18, 20};
  s.taps = {3, 5};
  check_call(s);
}

TEST_CASE("bfloat16: every gate, in place, an average of the data's type, and any layout") {
  unsigned seed = 300;
  for (auto gate_fn :
       {aft::gate::none, aft::gate::identity, aft::gate::sigmoid, aft::gate::relu, aft::gate::tanh, aft::gate::silu}) {
    setup s = long_call(op::full, bias_form::dense_tt, ++seed);
    s.H = 1;
    s.Tq = s.Tk = 70;
    s.gate_fn = gate_fn;
    s.in_place = seed % 2 == 0;
    s.inputs = static_cast<layout>(seed % 6);
    check_call(s);
  }
  // A key channel that serves two heads has no lse to ask for.
  setup s = long_call(op::full, bias_form::dense_htt, ++seed);
  s.hk = 1;
  s.save = s.narrow_average = true;
  check_call(s);
}

TEST_CASE("bfloat16: logits and values that no proof covers") {
  unsigned seed = 400;
  for (double scale : {8.0, 40.0, 300.0})
    for (double v_scale : {1.0, 1e-20, 1e20}) {
      setup s = long_call(op::full, bias_form::dense_htt, ++seed);
      s.B = 1;
      s.k_scale = s.w_scale = scale;
      s.v_scale = v_scale;
      s.causal = seed % 2 == 0;
      check_call(s);
    }
}

TEST_CASE("bfloat16: on a device the product is taken unless the call asks for float, which shows in the bits") {
  if (!on_device()) return;
  setup s = long_call(op::full, bias_form::dense_htt, 500);
  const numbers x = random_numbers(s);
  const results product = run_forward(dtype::bf16, s, x);
  s.save = true;
  CHECK(product.y == run_forward(dtype::bf16, s, x).y);
  s.arithmetic = aft::arithmetic::full;
  CHECK(product.y != run_forward(dtype::bf16, s, x).y);
}

TEST_CASE("bfloat16: gradients from the lse and average of products are off by what those are") {
  unsigned seed = 700;
  for (bool causal : {false, true})
    for (bool narrow : {false, true}) {
      setup s = long_call(op::full, bias_form::dense_htt, ++seed);
      s.save = true;
      s.narrow_average = narrow;
      s.causal = causal;
      if (!concerns(dtype::bf16, s) || watched()) continue;
      const numbers x = random_numbers(s);
      const results saved = run_forward(dtype::bf16, s, x);
      oracle_result oracle = evaluate_backward(dtype::bf16, s, x);
      // A lse that is off is a factor of every weight; an average moves v - o by its own error.
      const long double off = pair_error(dtype::bf16, s);
      oracle.given_error += std::expm1(off) + off;
      allow_products(dtype::bf16, s, oracle);
      expect_within(dtype::bf16, s, run_backward(dtype::bf16, s, x, default_executor(), &saved), oracle);
    }
}

TEST_CASE("bfloat16: a lse and an average in float, with windows and without, rows that see nothing, shared keys") {
  unsigned seed = 600;
  for (op call : {op::full, op::local, op::conv})
    for (bool causal : {false, true})
      for (bool shared : {false, true}) {
        setup s = long_call(call, call == op::local ? bias_form::banded_htj : bias_form::dense_htt, ++seed);
        s.save = true;
        s.causal = causal;
        s.query_lengths = s.lengths = seed % 2 == 0;
        if (shared) s.hk = s.d / 8;
        if (call == op::local) s.win = {20, 11};
        if (call == op::conv) s.grid = {T};
        if (call == op::conv) s.taps = {9};
        check_call(s);
      }
}
