// SPDX-License-Identifier: Apache-2.0
// Windows and filters far shorter than the sequence, so that most keys are outside and are folded once for many rows.
#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;
using aft::window;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr index_t T = 110;  // no multiple of a tile

setup local(window win, bool causal, bias_form form = bias_form::banded_htj) {
  return {.call = op::local, .B = 1, .Tq = T, .Tk = T, .d = 4, .H = 2, .bias = form, .win = win, .causal = causal};
}

/// One of each kind that has an outside.
std::vector<setup> calls() {
  std::vector<setup> all;
  for (bool causal : {false, true}) {
    all.push_back(local({5, 4}, causal));
    all.push_back(local({5, 4}, causal, bias_form::dense_htt));
    all.push_back(local({3, 2}, causal, bias_form::factorized_htn));
    all.push_back({.call = op::conv, .B = 1, .d = 4, .hk = 2, .H = 2, .grid = {T}, .taps = {7}, .causal = causal});
  }
  all.push_back({.call = op::conv, .B = 2, .d = 4, .H = 4, .grid = {22, 5}, .taps = {3, 3}});
  return all;
}

}  // namespace

TEST_CASE("windows: narrow, one-sided, and away from their query") {
  unsigned seed = 0;
  for (bool causal : {false, true})
    for (auto win : {window::strict(1), window::strict(9), window{31, 0}, window{0, 33}, window{40, -30},
                     window{-30, 40}, window{T - 1, 1 - T}, window{1 - T, T - 1}, window{2 * T, -T - 1}}) {
      setup s = local(win, causal);
      s.seed = ++seed;
      s.save = seed % 2 == 0;
      check(s);
    }
}

TEST_CASE("windows: widths about those at which a panel's rows begin and end apart, across a block of 512 keys") {
  const processor_alone here;  // panels and blocks are the CPU's
  if (!here) return;
  unsigned seed = 50;
  for (bool causal : {false, true})
    for (auto hidden : {aft::outside::zero_bias, aft::outside::excluded})
      for (auto win : {window{1, 0}, window{1, 1}, window{4, 4}, window{5, 4}, window{6, 20}}) {
        setup s = local(win, causal);
        s.Tq = s.Tk = 530;
        s.d = 2;
        s.H = 1;
        s.outside = hidden;
        s.seed = ++seed;
        const numbers x = random_numbers(s);
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, x);
      }
}

TEST_CASE("windows: every bias, keys shared, lengths, and masks of keys and of pairs") {
  unsigned seed = 100;
  for (setup s : calls())
    for (auto mask : {mask_form::none, mask_form::batch_keys, mask_form::batch_pairs})
      for (index_t hk : {2, 4}) {
        s.hk = s.heads() == 4 ? 4 : hk;
        s.mask = mask;
        s.lengths = hk == 2;
        s.seed = ++seed;
        s.save = seed % 3 != 0;
        check(s);
      }
}

TEST_CASE("windows: the outside holds what peaks, what overflows, or what the window's weights drown") {
  for (setup s : calls())
    for (double level : {-500., 40., 800., 5000.}) {
      numbers x = random_numbers(s);
      x.k[level == 40 ? static_cast<std::size_t>((T - 1) * s.key_channels()) : 0] = level;
      for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, x);
      for (auto* bias : {&x.w, &x.r})
        for (double& e : *bias) e -= level;
      for (auto type : {aft::dtype::f32, aft::dtype::bf16}) check_both(type, s, x);
    }
}

TEST_CASE("windows: NaN and infinity outside reach the rows that see them, and hidden ones nobody") {
  for (setup s : calls())
    for (double value : {not_a_number, infinity}) {
      s.B = 2;
      const std::vector<std::function<void(numbers&)>> places{
          [&](numbers& x) { x.v[9 * 4 + 2] = value; }, [&](numbers& x) { x.v[(T + 100) * 4 + 1] = -value; },
          [&](numbers& x) { x.k[static_cast<std::size_t>(75 * s.key_channels())] = value; },
          // No query of a tile from there on has a number.
          [&](numbers& x) { x.k[static_cast<std::size_t>(64 * s.key_channels())] = value; },
          [&](numbers& x) { x.dy[20 * 4 + 3] = value; },
          [&](numbers& x) {
            s.lengths = true;
            x.lengths = {60, T};
            for (index_t t = 60; t < T; ++t) x.v[static_cast<std::size_t>(t * 4)] = value;
            for (index_t t = 60; t < T; ++t) x.k[static_cast<std::size_t>(t * s.key_channels())] = not_a_number;
          }};
      for (const auto& put : places) {
        s.lengths = false;
        numbers x = random_numbers(s);
        put(x);
        check_both(aft::dtype::f32, s, x);
      }
    }
}

TEST_CASE("windows: values and gradients at the ends of the type") {
  for (const setup& s : calls())
    for (auto type : {aft::dtype::f32, aft::dtype::f64})
      for (double size :
           {static_cast<double>(precision_of(type).max) / 8, std::ldexp(1.0, precision_of(type).min_exponent + 3)}) {
        numbers x = random_numbers(s);
        for (double& v : x.v) v = std::fmod(v, 1) * size;
        check_forward(type, s, x);
        x = random_numbers(s);
        for (double& dy : x.dy) dy = std::fmod(dy, 1) * size;
        check_backward(type, s, x);
      }
}

TEST_CASE("windows: causal rows do not change by a bit whatever the future holds, wherever their window is") {
  for (auto win : {window{6, 6}, window{40, -30}, window{-3, 6}}) {
    const setup s = local(win, true);
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::f64, aft::dtype::bf16}) {
      if (!concerns(type, s)) continue;
      const results before = run_forward(type, s, x);
      for (index_t now : {1, 64, 65, 100})
        for (double future : {not_a_number, 1e30, 80.0}) {
          numbers y = x;
          for (auto which : {&numbers::k, &numbers::v})
            for (std::size_t i = 0; i < y.k.size(); ++i) {
              if (static_cast<index_t>(i) / s.d % T >= now) (y.*which)[i] = future;
            }
          const results after = run_forward(type, s, y);
          std::size_t changed = 0;
          for (std::size_t i = 0; i < before.y.size(); ++i) {
            if (static_cast<index_t>(i) / s.d % T < now) changed += before.y[i] != after.y[i] ? 1 : 0;
          }
          CHECK(changed == 0);
        }
    }
  }
}
