// SPDX-License-Identifier: Apache-2.0
/// @file cases.hpp  Lists of calls that several tests go through.
#pragma once

#include "setup.hpp"

namespace aft::test {

/// Calls that differ from one of them in little.
struct call_list {
  setup base;
  std::vector<setup> all;

  /// What was added, for whatever else sets it apart; until the next one is.
  setup& add(op call, bias_form form, aft::outside outside = aft::outside::zero_bias) {
    all.push_back(base);
    all.back().call = call;
    all.back().bias = form;
    all.back().outside = outside;
    return all.back();
  }
};

/// One setup per operator and bias form, with 20 positions; with keys shared and outside counting, then not.
inline std::vector<setup> every_operator(bool causal = false) {
  call_list calls{.base{.B = 2,
                        .Tq = 20,
                        .Tk = 20,
                        .d = 6,
                        .hk = 3,
                        .H = 3,
                        .win = {4, 3},
                        .grid = {20},
                        .taps = {5},
                        .causal = causal},
                  .all{}};
  calls.add(op::full, bias_form::dense_htt);
  calls.add(op::full, bias_form::factorized_htn);
  calls.add(op::local, bias_form::dense_htt);
  calls.add(op::local, bias_form::factorized_htn);
  calls.add(op::local, bias_form::banded_htj);
  calls.add(op::simple, bias_form::dense_htt);
  calls.add(op::conv, bias_form::dense_htt);
  if (!causal) {
    setup& grid = calls.add(op::conv, bias_form::dense_htt);
    grid.grid = {4, 5};
    grid.taps = {3, 2};
  }
  std::vector<setup>& all = calls.all;
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().hk = 6;
    all.back().outside = outside::excluded;
  }
  return all;
}

}  // namespace aft::test
