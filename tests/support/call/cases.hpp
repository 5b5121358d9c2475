// SPDX-License-Identifier: Apache-2.0
/// @file cases.hpp  Lists of calls that several tests go through.
#pragma once

#include "setup.hpp"

namespace aft::test {

/// One setup per operator and bias form, with 20 positions; with keys shared and outside counting, then not.
inline std::vector<setup> every_operator(bool causal = false) {
  const setup base{
      .B = 2, .Tq = 20, .Tk = 20, .d = 6, .hk = 3, .H = 3, .win = {4, 3}, .grid = {20}, .taps = {5}, .causal = causal};
  std::vector<setup> all;
  const auto add = [&](op call, bias_form form) {
    all.push_back(base);
    all.back().call = call;
    all.back().bias = form;
  };
  add(op::full, bias_form::dense_htt);
  add(op::full, bias_form::factorized_htn);
  add(op::local, bias_form::dense_htt);
  add(op::local, bias_form::factorized_htn);
  add(op::local, bias_form::banded_htj);
  add(op::simple, bias_form::dense_htt);
  add(op::conv, bias_form::dense_htt);
  if (!causal) {
    add(op::conv, bias_form::dense_htt);
    all.back().grid = {4, 5};
    all.back().taps = {3, 2};
  }
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().hk = 6;
    all.back().outside = outside::excluded;
  }
  return all;
}

}  // namespace aft::test
