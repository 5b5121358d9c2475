// SPDX-License-Identifier: Apache-2.0
// Gradients of windows where the fold that makes dk and dv has the gates and the bias's products with it.
#include <doctest/doctest.h>

#include <limits>
#include <utility>

#include "engines/engines.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// lse and average given: what the fold needs to gate by itself.
setup local(index_t B, index_t T, index_t d, index_t H) {
  return {.call = op::local, .B = B, .Tq = T, .Tk = T, .d = d, .H = H, .bias = bias_form::banded_htj, .win = {6, 3}};
}

}  // namespace

TEST_CASE("products: heads of whole vectors and others, one panel or many, biases and data of every storage") {
  unsigned seed = 700;
  for (index_t T : {1, 14, 45, 110})
    for (auto [d, H] : {std::pair<index_t, index_t>{32, 2}, {42, 1}, {16, 1}})
      for (auto bias : {bias_form::banded_htj, bias_form::dense_tt, bias_form::dense_bhtt})
        for (bool causal : {false, true}) {
          setup s = local(2, T, d, H);
          s.bias = bias;
          s.causal = causal;
          s.lengths = T == 45;
          s.outside = T == 110 && causal ? aft::outside::excluded : aft::outside::zero_bias;
          s.narrow_average = d == 42;
          s.seed = ++seed;
          const numbers x = random_numbers(s);
          for (unsigned i : {0u, 1u}) check_backward(all_types[(seed + i) % 4], s, x);
        }
}

TEST_CASE("products: upstream gradients far from ordinary size, found while they are multiplied") {
  for (double size : {0x1p-100, 0x1p-70, 0x1p+90}) {
    const setup s = local(2, 60, 32, 1);
    numbers x = random_numbers(s);
    for (double& dy : x.dy) dy *= size;
    for (auto type : {aft::dtype::f32, aft::dtype::f64, aft::dtype::bf16}) check_backward(type, s, x);
    // One channel far below the others, one row far below its channel.
    for (std::size_t i = 0; i < x.dy.size(); ++i)
      if (i % 32 == 5 || i / 32 % 60 == 17) x.dy[i] *= 0x1p-20;
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_backward(type, s, x);
  }
}

TEST_CASE("products: a row that sees no key hands out exact zeros, whatever q and dy hold there") {
  setup s = local(3, 40, 32, 2);
  s.lengths = true;
  numbers x = random_numbers(s);
  x.lengths = {0, 40, 9};
  for (std::size_t i = 0; i < 40 * 32; ++i) x.q[i] = x.dy[i] = std::numeric_limits<double>::quiet_NaN();
  for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_backward(type, s, x);
}

TEST_CASE("products: one key above all others in one channel, so that its pairs alone take the definition") {
  for (double level : {60., 300., 6000.}) {
    const setup s = local(2, 90, 48, 1);
    numbers x = random_numbers(s);
    x.k[41 * 48 + 7] = level;
    x.k[(90 + 3) * 48 + 47] = -level;
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_backward(type, s, x);
  }
}

TEST_CASE("products: the same bits from any number of threads, and in every layout") {
  // Groups of lane tiles that cross a batch element's end, gates before the fold, and groups that do not.
  for (auto [d, H] : {std::pair<index_t, index_t>{64, 2}, {64, 1}, {320, 2}, {45, 1}}) {
    setup s = local(3, 130, d, H);
    s.bias = bias_form::dense_htt;
    const numbers x = random_numbers(s);
    for (auto type : all_types) {
      const results saved = run_forward(type, s, x);
      const results one = run_backward(type, s, x, default_executor(), &saved);
      for (const auto& exec : equivalent_executors())
        CHECK(first_difference(one, run_backward(type, s, x, exec, &saved)) == "");
      setup elsewhere = s;
      for (auto form :
           {layout::padded, layout::channels_first, layout::misaligned, layout::reversed, layout::time_first}) {
        for (auto [inputs, outputs] : {std::pair{form, form}, {form, layout::row_major}, {layout::row_major, form}}) {
          if (watched() && inputs != outputs) continue;  // the same addresses
          elsewhere.inputs = inputs;
          elsewhere.outputs = outputs;
          CHECK(first_difference(one, run_backward(type, elsewhere, x, default_executor(), &saved)) == "");
        }
      }
    }
  }
}

TEST_CASE("products: a channel's gradients do not change by a bit whatever size another channel's are") {
  const setup s = local(2, 60, 64, 1);
  const numbers x = random_numbers(s);
  for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
    const results saved = run_forward(type, s, x);
    results all = run_backward(type, s, x, default_executor(), &saved);
    for (double size : {1e-30, 1e-9, 1e9}) {
      numbers y = x;
      if (size == 1e9) {
        // Subnormal columns in half of another channel's rows.
        for (std::size_t i = 6; i < y.dy.size() / 2; i += 64) y.dy[i] *= std::numeric_limits<float>::min();
        all = run_backward(type, s, y, default_executor(), &saved);
      }
      for (std::size_t i = 5; i < y.dy.size(); i += 64) y.dy[i] *= size;
      const results other = run_backward(type, s, y, default_executor(), &saved);
      for (auto gradient : {&results::dq, &results::dk, &results::dv}) {
        std::size_t changed = 0;
        for (std::size_t i = 0; i < y.dy.size(); ++i)
          changed += i % 64 != 5 && (all.*gradient)[i] != (other.*gradient)[i] ? 1 : 0;
        CHECK(changed == 0);
      }
    }
  }
}

TEST_CASE("products: a sequence too long to keep all columns, pairs outside the window hidden") {
  if (on_device()) return;  // long sequences have a test of their own there
  setup s = local(1, 4110, 32, 1);
  s.bias = bias_form::banded_tj;
  s.outside = aft::outside::excluded;
  s.causal = true;
  check_backward(aft::dtype::f64, s, random_numbers(s));
}
