// SPDX-License-Identifier: Apache-2.0
// Every extent passes the multiples of the vector width on its own while the others stay small.
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;
using aft::window;

namespace {

constexpr index_t W = 16;  // floats in the widest vector; the narrower widths' multiples are among these sizes
constexpr index_t sizes[] = {0, 1, 3, 7, W - 1, W, W + 1, 3 * W, 8 * W + 2};

}  // namespace

TEST_CASE("sizes: batch") {
  for (index_t B : sizes) {
    check({.B = B, .Tq = 3, .Tk = 3, .d = 2});
    check({.B = B, .Tq = 3, .Tk = 3, .d = 2, .bias = bias_form::dense_bhtt});
    check({.B = B, .Tq = 3, .Tk = 3, .d = 2, .bias = bias_form::dense_tt, .mask = mask_form::batch_pairs});
    check({.call = op::local, .B = B, .Tq = 4, .Tk = 4, .d = 2, .win = window::strict(2)});
    check({.call = op::simple, .B = B, .Tq = 3, .Tk = 3, .d = 2, .causal = true});
    check({.call = op::conv, .B = B, .d = 2, .grid = {2, 2}, .taps = {3, 3}});
  }
}

TEST_CASE("sizes: queries and keys apart") {
  for (index_t T : sizes)
    for (bool causal : {false, true}) {
      check({.B = 2, .Tq = T, .Tk = 4, .d = 3, .causal = causal});
      check({.B = 2, .Tq = 4, .Tk = T, .d = 3, .causal = causal});
      check({.B = 2, .Tq = T, .Tk = 4, .d = 3, .bias = bias_form::factorized_tn, .causal = causal});
      check({.B = 2, .Tq = 4, .Tk = T, .d = 3, .bias = bias_form::factorized_tn, .causal = causal});
      check({.call = op::simple, .B = 2, .Tq = T, .Tk = 4, .d = 3, .causal = causal});
      check({.call = op::simple, .B = 2, .Tq = 4, .Tk = T, .d = 3, .causal = causal});
    }
}

TEST_CASE("sizes: positions") {
  for (index_t T : sizes)
    for (bool causal : {false, true}) {
      check({.B = 1, .Tq = T, .Tk = T, .d = 2, .causal = causal});
      check({.call = op::local, .B = 1, .Tq = T, .Tk = T, .d = 2, .win = window::strict(4), .causal = causal});
      check({.call = op::local,
             .B = 1,
             .Tq = T,
             .Tk = T,
             .d = 2,
             .bias = bias_form::banded_tj,
             .win = {W, 1},
             .causal = causal});
      check({.call = op::simple, .B = 1, .Tq = T, .Tk = T, .d = 2, .causal = causal});
      check({.call = op::conv, .B = 1, .d = 2, .grid = {T}, .taps = {5}, .causal = causal});
    }
}

TEST_CASE("sizes: the axes of a grid") {
  for (index_t T : sizes) {
    check({.call = op::conv, .B = 1, .d = 2, .grid = {T, 2}, .taps = {3, 3}});
    check({.call = op::conv, .B = 1, .d = 2, .grid = {2, T}, .taps = {3, 3}});
    if (T > 3 * W) continue;  // three axes: the oracle looks at all pairs
    check({.call = op::conv, .B = 1, .d = 1, .grid = {2, 2, T}, .taps = {3, 2, 3}});
    check({.call = op::conv, .B = 1, .d = 1, .grid = {T, 2, 2}, .taps = {2, 3, 3}});
  }
}

TEST_CASE("sizes: channels, keys of their own or one for all") {
  for (index_t d : sizes) {
    const index_t one = d == 0 ? 0 : 1;
    for (index_t hk : {d, one}) {
      check({.B = 1, .Tq = 5, .Tk = 5, .d = d, .hk = hk});
      check({.B = 1, .Tq = 5, .Tk = 5, .d = d, .hk = hk, .bias = bias_form::factorized_tn});
      check({.call = op::local, .B = 1, .Tq = 5, .Tk = 5, .d = d, .hk = hk, .win = window::strict(2)});
      check({.call = op::simple, .B = 1, .Tq = 5, .Tk = 5, .d = d, .hk = hk});
      check({.call = op::simple, .B = 1, .Tq = 5, .Tk = 5, .d = d, .hk = hk, .causal = true});
      check({.call = op::conv, .B = 1, .d = d, .hk = hk, .grid = {5}, .taps = {3}});
      check({.call = op::conv, .B = 1, .d = d, .hk = hk, .grid = {2, 3}, .taps = {3, 3}});
    }
  }
}

TEST_CASE("sizes: heads, one channel each or several") {
  for (index_t H : sizes) {
    if (H == 0) continue;  // a bias has at least one head
    for (index_t each : {1, 3}) {
      check({.B = 1, .Tq = 4, .Tk = 4, .d = H * each, .H = H});
      check({.B = 1, .Tq = 4, .Tk = 4, .d = H * each, .H = H, .bias = bias_form::factorized_htn});
      check({.call = op::local, .B = 1, .Tq = 4, .Tk = 4, .d = H * each, .H = H, .win = window::strict(2)});
      check({.call = op::conv, .B = 1, .d = H * each, .hk = H, .H = H, .grid = {2, 3}, .taps = {3, 3}});
      check({.call = op::conv, .B = 2, .d = H * each, .H = H, .grid = {6}, .taps = {3}, .causal = true});
    }
  }
}

TEST_CASE("sizes: windows, filters and factor ranks") {
  for (index_t n : sizes) {
    check({.B = 1, .Tq = 6, .Tk = 6, .d = 2, .bias = bias_form::factorized_tn, .n = n});
    check({.call = op::local, .B = 1, .Tq = 40, .Tk = 40, .d = 2, .win = window::strict(n)});
    check({.call = op::local,
           .B = 1,
           .Tq = 40,
           .Tk = 40,
           .d = 2,
           .bias = bias_form::banded_tj,
           .win = {n, 0},
           .causal = true});
    if (n > 0) check({.call = op::conv, .B = 1, .d = 2, .grid = {40}, .taps = {n}});
  }
}

TEST_CASE("sizes: sequences that span several blocks of keys and of queries") {
  // A thousand keys are more than a depth block of any kernel; ten thousand fill more than a cache.
  for (auto form : {bias_form::dense_tt, bias_form::factorized_tn}) {
    check({.B = 1, .Tq = 3, .Tk = 1100, .d = 2, .bias = form, .n = 2});
    check({.B = 1, .Tq = 1100, .Tk = 3, .d = 2, .bias = form, .n = 2});
    check({.B = 1, .Tq = 2, .Tk = 9000, .d = 1, .bias = form, .n = 2});
  }
  check({.call = op::simple, .B = 1, .Tq = 2, .Tk = 9000, .d = 1});
  for (bool causal : {false, true}) {
    check({.B = 1, .Tq = 600, .Tk = 600, .d = 1, .causal = causal});
    check({.call = op::local,
           .B = 1,
           .Tq = 600,
           .Tk = 600,
           .d = 1,
           .bias = bias_form::banded_tj,
           .win = window::strict(20),
           .causal = causal});
    check({.call = op::conv, .B = 1, .d = 1, .grid = {600}, .taps = {33}, .causal = causal});
  }
}

TEST_CASE("sizes: the borders of a device's tiles, where its products are chosen on their own") {
  struct {
    index_t Tq, Tk, d, H;
  } const all[] = {{64, 64, 16, 1}, {63, 65, 33, 1},  {65, 95, 32, 2},
                   {1, 97, 70, 2},  {130, 96, 31, 1}, {97, 130, 16, 1}};
  for (const auto& size : all)
    for (bool causal : {false, true}) {
      const setup s{.B = 3,
                    .Tq = size.Tq,
                    .Tk = size.Tk,
                    .d = size.d,
                    .H = size.H,
                    .causal = causal,
                    .mask = mask_form::batch_keys};
      setup factors = s;
      factors.bias = bias_form::factorized_htn;
      factors.mask = mask_form::none;
      factors.lengths = true;
      for (const setup& each : {s, factors}) {
        const numbers x = random_numbers(each);
        for (auto type : all_types) check_forward(type, each, x);
      }
    }
}
