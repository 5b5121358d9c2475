// SPDX-License-Identifier: Apache-2.0
// Windows of a factorized bias whose band is more than a device expands at once.
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;

TEST_CASE("window parts: many heads, expanded band by band in parts") {
  if (!on_device()) return;
  const setup s{.call = op::local,
                .B = 1,
                .Tq = 330,
                .Tk = 330,
                .d = 100,
                .H = 100,
                .bias = bias_form::factorized_htn,
                .win = {60, 69}};
  const numbers x = random_numbers(s);
  check_forward(aft::dtype::f32, s, x);
  check_backward(aft::dtype::f32, s, x);
}
