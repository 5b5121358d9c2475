// SPDX-License-Identifier: Apache-2.0
// Calls from several threads at once, each with a team of its own. Run under ThreadSanitizer as well.
#include <doctest/doctest.h>

#include <array>
#include <cfenv>
#include <thread>

#include "harness/harness.hpp"

using namespace aft::test;

namespace {

// One of each algorithm: dense and factorized products, windows, scans, filters, masks, shared keys.
std::vector<setup> calls() {
  return {
      {.Tq = 70, .Tk = 70, .d = 20, .H = 2, .bias = bias_form::dense_htt},
      {.Tq = 40, .Tk = 65, .d = 12, .hk = 6, .H = 3, .bias = bias_form::factorized_htn, .mask = mask_form::batch_pairs},
      {.Tq = 70, .Tk = 70, .d = 18, .H = 2, .bias = bias_form::dense_htt, .causal = true, .lengths = true},
      {.call = op::local, .Tq = 90, .Tk = 90, .d = 10, .H = 2, .bias = bias_form::banded_htj, .win = {5, 5}},
      {.call = op::local, .Tq = 90, .Tk = 90, .d = 10, .bias = bias_form::dense_tt, .win = {9, 0}, .causal = true},
      {.call = op::simple, .Tq = 130, .Tk = 130, .d = 20},
      {.call = op::simple, .Tq = 130, .Tk = 130, .d = 20, .causal = true},
      {.call = op::conv, .d = 12, .hk = 3, .H = 3, .grid = {60}, .taps = {7}, .causal = true},
      {.call = op::conv, .d = 8, .H = 8, .grid = {9, 8}, .taps = {3, 5}},
      // Far apart, so that the exact path runs beside the fast one.
      {.Tq = 50, .Tk = 50, .d = 10, .H = 2, .bias = bias_form::dense_htt, .k_scale = 50, .w_scale = 200},
  };
}

}  // namespace

TEST_CASE("two threads calling at once get the bits of a call alone") {
  for (const setup& s : calls()) {
    const numbers x = random_numbers(s);
    for (const aft::dtype type : {aft::dtype::f32, aft::dtype::f64}) {
      const results forward = run_forward(type, s, x);
      const results backward = run_backward(type, s, x);
      std::array<results, 2> forwards;
      std::array<results, 2> backwards;
      const auto work = [&](std::size_t i) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          forwards[i] = run_forward(type, s, x, aft::cpu{.threads = 2 + static_cast<int>(i)});
          backwards[i] = run_backward(type, s, x, aft::cpu{.threads = 3 - static_cast<int>(i)});
        }
      };
      std::thread other(work, 1);
      work(0);
      other.join();
      for (std::size_t i = 0; i < 2; ++i) {
        INFO(describe(completed(s), type));
        CHECK(first_difference(forward, forwards[i]) == "");
        CHECK(first_difference(backward, backwards[i]) == "");
        CHECK(forwards[i].damage == "");
        CHECK(backwards[i].damage == "");
      }
    }
  }
}

TEST_CASE("a call leaves the rounding mode and the exception mask as it found them") {
  const setup s = calls().front();
  const numbers x = random_numbers(s);
  std::fenv_t before;
  std::fenv_t after;
  REQUIRE(std::fegetenv(&before) == 0);
  run_forward(aft::dtype::f32, s, x, aft::cpu{.threads = 2});
  run_backward(aft::dtype::f32, s, x, aft::cpu{.threads = 2});
  REQUIRE(std::fegetenv(&after) == 0);
  CHECK(std::fegetround() == FE_TONEAREST);
#if defined(__x86_64__)
  // Status flags are sticky and may change; control bits, with flush-to-zero among them, may not.
  constexpr unsigned control = 0xffc0;
  CHECK((before.__mxcsr & control) == (after.__mxcsr & control));
#endif
}
