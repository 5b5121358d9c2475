// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "support/harness.hpp"

using namespace aft::test;

TEST_CASE("full: every bias form") {
  for (auto form : {bias_form::dense_tt, bias_form::dense_htt, bias_form::factorized_mixed}) {
    check({.B = 2, .Tq = 5, .Tk = 7, .d = 4, .H = 2, .bias = form});
  }
}
