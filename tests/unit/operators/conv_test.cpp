// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;

TEST_CASE("conv: odd and even filters on a sequence, causal or not, also longer than the sequence") {
  unsigned seed = 0;
  for (index_t T : {1, 2, 9, 20})
    for (index_t taps : {1, 2, 3, 4, 7, 8, 41})
      for (bool causal : {false, true})
        for (auto out : {outside::zero_bias, outside::excluded}) {
          check({.call = op::conv,
                 .B = 2,
                 .d = 4,
                 .hk = 2,
                 .H = 2,
                 .grid = {T},
                 .taps = {taps},
                 .causal = causal,
                 .outside = out,
                 .seed = ++seed});
        }
}

TEST_CASE("conv: filters on 2-D and 3-D grids, odd and even, also larger than the grid") {
  unsigned seed = 500;
  for (auto out : {outside::zero_bias, outside::excluded}) {
    for (auto [grid, taps] : {std::pair<std::vector<index_t>, std::vector<index_t>>{{5, 4}, {3, 3}},
                              {{4, 7}, {2, 4}},
                              {{1, 9}, {3, 5}},
                              {{9, 1}, {5, 3}},
                              {{3, 3}, {7, 8}},
                              {{14, 14}, {1, 1}},
                              {{6, 6}, {1, 6}},
                              {{3, 4, 2}, {3, 3, 3}},
                              {{2, 3, 5}, {2, 1, 4}},
                              {{1, 1, 6}, {1, 1, 3}},
                              {{2, 2, 2}, {5, 5, 5}}}) {
      for (index_t hk : {2, 4}) {
        check({.call = op::conv,
               .B = 2,
               .d = 4,
               .hk = hk,
               .H = 2,
               .grid = grid,
               .taps = taps,
               .outside = out,
               .seed = ++seed});
      }
    }
  }
}

TEST_CASE("conv: an axis without taps makes every pair an outside one, whatever the other axes have") {
  unsigned seed = 900;
  for (auto out : {outside::zero_bias, outside::excluded})
    for (auto [grid, taps] : {std::pair<std::vector<index_t>, std::vector<index_t>>{{7}, {0}},
                              {{1, 7}, {0, 4}},
                              {{1, 7}, {3, 0}},
                              {{3, 4}, {0, 3}},
                              {{3, 4}, {3, 0}},
                              {{1, 1, 7}, {1, 0, 4}},
                              {{1, 1, 7}, {0, 3, 4}},
                              {{1, 1, 1}, {0, 4, 3}},
                              {{2, 3, 2}, {3, 0, 2}}}) {
      for (auto mask : {mask_form::none, mask_form::pairs}) {
        check({.call = op::conv,
               .B = 2,
               .d = 4,
               .hk = 2,
               .H = 2,
               .grid = grid,
               .taps = taps,
               .mask = mask,
               .outside = out,
               .seed = ++seed});
      }
    }
  for (auto out : {outside::zero_bias, outside::excluded})
    for (index_t T : {1, 7, 20})
      for (bool save : {true, false})
        check({.call = op::conv,
               .B = 2,
               .d = 4,
               .hk = 2,
               .H = 2,
               .grid = {T},
               .taps = {0},
               .causal = true,
               .outside = out,
               .seed = ++seed,
               .save = save});
}

TEST_CASE("conv: masks and key lengths count positions of the flattened grid") {
  unsigned seed = 700;
  for (auto mask : {mask_form::none, mask_form::keys, mask_form::batch_keys, mask_form::pairs, mask_form::batch_pairs})
    for (bool lengths : {false, true})
      for (auto out : {outside::zero_bias, outside::excluded}) {
        check({.call = op::conv,
               .B = 2,
               .d = 4,
               .hk = 2,
               .H = 2,
               .grid = {11},
               .taps = {4},
               .causal = lengths,
               .mask = mask,
               .lengths = lengths,
               .outside = out,
               .seed = ++seed});
        check({.call = op::conv,
               .B = 2,
               .d = 4,
               .H = 2,
               .grid = {4, 5},
               .taps = {3, 2},
               .mask = mask,
               .lengths = lengths,
               .outside = out,
               .seed = ++seed});
        check({.call = op::conv,
               .B = 2,
               .d = 2,
               .H = 1,
               .grid = {2, 3, 3},
               .taps = {2, 3, 3},
               .mask = mask,
               .lengths = lengths,
               .outside = out,
               .seed = ++seed});
      }
}

TEST_CASE("conv: heads and shared key channels in every combination") {
  unsigned seed = 900;
  for (index_t H : {1, 2, 3, 4, 6, 12})
    for (index_t hk : {1, 2, 3, 4, 6, 12}) {
      check({.call = op::conv, .B = 2, .d = 12, .hk = hk, .H = H, .grid = {3, 4}, .taps = {3, 3}, .seed = ++seed});
      check({.call = op::conv,
             .B = 1,
             .d = 12,
             .hk = hk,
             .H = H,
             .grid = {9},
             .taps = {3},
             .causal = true,
             .seed = ++seed});
    }
}

TEST_CASE("conv: every gate, saved or recomputed") {
  unsigned seed = 1100;
  for (auto g : {gate::none, gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu})
    for (bool save : {false, true}) {
      check({.call = op::conv,
             .B = 2,
             .d = 4,
             .H = 2,
             .grid = {3, 5},
             .taps = {3, 3},
             .gate_fn = g,
             .q_scale = 3,
             .seed = ++seed,
             .save = save});
    }
}

TEST_CASE("conv: an image as a vision model has it, many channels, filter 11 x 11") {
  check(
      {.call = op::conv, .B = 1, .d = 8, .hk = 2, .H = 2, .grid = {14, 14}, .taps = {11, 11}, .w_scale = 2, .seed = 7});
  check({.call = op::conv, .B = 1, .d = 8, .H = 8, .grid = {14, 14}, .taps = {11, 11}, .seed = 8});
}
