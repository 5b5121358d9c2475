// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;

namespace {

constexpr bias_form forms[] = {bias_form::dense_tt,        bias_form::dense_htt,     bias_form::dense_bhtt,
                               bias_form::dense_1htt,      bias_form::factorized_tn, bias_form::factorized_htn,
                               bias_form::factorized_mixed};
constexpr mask_form masks[] = {mask_form::none, mask_form::keys, mask_form::batch_keys, mask_form::pairs,
                               mask_form::batch_pairs};

}  // namespace

TEST_CASE("full: every bias form, causal or not, under every mask and key lengths") {
  unsigned seed = 0;
  for (auto form : forms)
    for (bool causal : {false, true})
      for (auto mask : masks)
        for (bool lengths : {false, true}) {
          check({.B = 2,
                 .Tq = 9,
                 .Tk = 9,
                 .d = 4,
                 .H = 2,
                 .bias = form,
                 .causal = causal,
                 .mask = mask,
                 .lengths = lengths,
                 .seed = ++seed});
        }
}

TEST_CASE("full: queries and keys of different lengths") {
  unsigned seed = 100;
  for (auto form : forms)
    for (bool causal : {false, true})
      for (auto [Tq, Tk] : {std::pair<index_t, index_t>{1, 23}, {23, 1}, {5, 40}, {40, 5}}) {
        check({.B = 2,
               .Tq = Tq,
               .Tk = Tk,
               .d = 6,
               .H = 3,
               .bias = form,
               .causal = causal,
               .lengths = causal,
               .seed = ++seed});
      }
}

TEST_CASE("full: heads and shared key channels in every combination") {
  unsigned seed = 200;
  for (index_t H : {1, 2, 3, 4, 6, 12})
    for (index_t hk : {1, 2, 3, 4, 6, 12})
      for (auto form : {bias_form::dense_htt, bias_form::factorized_htn}) {
        check({.B = 2, .Tq = 6, .Tk = 6, .d = 12, .hk = hk, .H = H, .bias = form, .causal = hk == H, .seed = ++seed});
      }
}

TEST_CASE("full: every gate, with lse and average saved or recomputed, wide or in the data's type") {
  unsigned seed = 300;
  for (auto g : {gate::none, gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu})
    for (bool save : {false, true})
      for (bool narrow : {false, true}) {
        check({.B = 2,
               .Tq = 8,
               .Tk = 8,
               .d = 6,
               .H = 2,
               .gate_fn = g,
               .q_scale = 3,
               .seed = ++seed,
               .save = save,
               .narrow_average = narrow});
      }
}

TEST_CASE("full: a factorized bias of any rank, from 0 to more than the sequence") {
  unsigned seed = 400;
  for (index_t n : {0, 1, 2, 5, 16, 17, 40})
    for (auto form : {bias_form::factorized_tn, bias_form::factorized_htn, bias_form::factorized_mixed}) {
      check({.B = 2, .Tq = 10, .Tk = 12, .d = 4, .H = 2, .bias = form, .n = n, .seed = ++seed});
    }
}
