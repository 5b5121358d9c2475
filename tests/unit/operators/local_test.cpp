// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;
using aft::window;

namespace {

constexpr bias_form forms[] = {bias_form::dense_tt,      bias_form::dense_htt,      bias_form::dense_bhtt,
                               bias_form::factorized_tn, bias_form::factorized_htn, bias_form::factorized_mixed,
                               bias_form::banded_tj,     bias_form::banded_htj};
constexpr mask_form masks[] = {mask_form::none, mask_form::keys, mask_form::batch_keys, mask_form::pairs,
                               mask_form::batch_pairs};

}  // namespace

TEST_CASE("local: every bias form, causal or not, keys outside counting or excluded, under every mask and lengths") {
  unsigned seed = 0;
  for (auto form : forms)
    for (bool causal : {false, true})
      for (auto out : {outside::zero_bias, outside::excluded})
        for (auto mask : masks)
          for (bool lengths : {false, true}) {
            check({.call = op::local,
                   .B = 2,
                   .Tq = 11,
                   .Tk = 11,
                   .d = 4,
                   .H = 2,
                   .bias = form,
                   .win = window::strict(3),
                   .causal = causal,
                   .mask = mask,
                   .lengths = lengths,
                   .outside = out,
                   .seed = ++seed});
          }
}

TEST_CASE("local: windows of every shape, empty, one-sided, away from t, wider than the sequence") {
  unsigned seed = 1000;
  const index_t T = 14;
  for (auto win : {window::strict(0), window::strict(1), window::strict(4), window::inclusive(0), window::inclusive(3),
                   window{5, 0}, window{0, 5}, window{6, -3}, window{-3, 6}, window{-2, 1}, window{T - 1, T - 1},
                   window{3 * T, 3 * T}, window{-2 * T, 3 * T}})
    for (auto form : {bias_form::dense_htt, bias_form::factorized_htn, bias_form::banded_htj})
      for (bool causal : {false, true})
        for (auto out : {outside::zero_bias, outside::excluded}) {
          check({.call = op::local,
                 .B = 2,
                 .Tq = T,
                 .Tk = T,
                 .d = 4,
                 .H = 2,
                 .bias = form,
                 .win = win,
                 .causal = causal,
                 .outside = out,
                 .seed = ++seed});
        }
}

TEST_CASE("local: heads and shared key channels in every combination") {
  unsigned seed = 2000;
  for (index_t H : {1, 2, 3, 6})
    for (index_t hk : {1, 2, 3, 6})
      for (auto form : {bias_form::dense_htt, bias_form::banded_htj}) {
        check({.call = op::local,
               .B = 2,
               .Tq = 8,
               .Tk = 8,
               .d = 6,
               .hk = hk,
               .H = H,
               .bias = form,
               .win = window::inclusive(2),
               .causal = hk == H,
               .seed = ++seed});
      }
}

TEST_CASE("local: every gate, saved or recomputed") {
  unsigned seed = 3000;
  for (auto g : {gate::none, gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu})
    for (bool save : {false, true}) {
      check({.call = op::local,
             .B = 2,
             .Tq = 9,
             .Tk = 9,
             .d = 4,
             .bias = bias_form::banded_tj,
             .win = window::strict(3),
             .gate_fn = g,
             .q_scale = 3,
             .seed = ++seed,
             .save = save});
    }
}

TEST_CASE("local: long sequences, where most keys are outside") {
  unsigned seed = 4000;
  for (bool causal : {false, true})
    for (auto out : {outside::zero_bias, outside::excluded})
      for (auto form : {bias_form::dense_htt, bias_form::banded_htj}) {
        check({.call = op::local,
               .B = 1,
               .Tq = 130,
               .Tk = 130,
               .d = 3,
               .bias = form,
               .win = window::strict(9),
               .causal = causal,
               .lengths = causal,
               .outside = out,
               .k_scale = 3,
               .seed = ++seed});
      }
}
