// SPDX-License-Identifier: Apache-2.0
// What the device does for windows, counted in tiles: every one takes two barriers of its block.
#include <doctest/doctest.h>

#include <aft/aft.hpp>
#include <device_emulator.hpp>

#include <cstdint>
#include <functional>

#include "engines/own_engine.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;
namespace emulator = aft::emulator;

namespace {

setup narrow(index_t T, op call = op::local, bool causal = false, index_t d = 4) {
  return {.call = call,
          .B = 1,
          .Tq = T,
          .Tk = T,
          .d = d,
          .bias = bias_form::banded_tj,
          .win = {7, 6},
          .grid = {T},
          .taps = {9},
          .causal = causal};
}

std::int64_t barriers(const setup& s, aft::dtype type, bool backward) {
  const numbers x = random_numbers(s);
  const results saved = run_forward(type, s, x, aft::cuda{});
  const std::int64_t before = emulator::barriers_passed();
  if (backward) {
    (void)run_backward(type, s, x, aft::cuda{}, &saved);
  } else {
    (void)run_forward(type, s, x, aft::cuda{});
  }
  return emulator::barriers_passed() - before;
}

/// How the work grows when the sequence gets four times as long.
double growth(const std::function<setup(index_t)>& of, aft::dtype type, bool backward) {
  return static_cast<double>(barriers(of(640), type, backward)) /
         static_cast<double>(barriers(of(160), type, backward));
}

}  // namespace

TEST_CASE("window work: four times the positions are four times the tiles, in either engine") {
  for (op call : {op::local, op::conv})
    for (bool causal : {false, true})
      for (bool backward : {false, true})
        for (auto type : {aft::dtype::f64, aft::dtype::f32, aft::dtype::bf16}) {
          // 16 channels and more take matrix products.
          const index_t d = type == aft::dtype::f64 ? 4 : 16;
          CAPTURE(describe(narrow(64, call, causal, d), type));
          CAPTURE(backward);
          CHECK(growth([&](index_t T) { return narrow(T, call, causal, d); }, type, backward) < 4.5);
        }
}

TEST_CASE("window work: of a factorized bias the band is expanded, and no more memory taken than for it") {
  const auto factorized = [](index_t T) {
    setup s = narrow(T);
    s.bias = bias_form::factorized_tn;
    return s;
  };
  for (bool backward : {false, true}) CHECK(growth(factorized, aft::dtype::f32, backward) < 4.5);
  emulator::memory().peak = 0;
  const setup s = factorized(1024);
  (void)run_backward(aft::dtype::f32, s, random_numbers(s), aft::cuda{});
  CHECK(emulator::memory().peak < 1024 * 1024);
}

TEST_CASE("window work: a mask pair by pair makes every pair different, and all of them are visited") {
  for (bool backward : {false, true}) {
    const auto masked = [](index_t T) {
      setup s = narrow(T);
      s.mask = mask_form::pairs;
      return s;
    };
    CHECK(growth(masked, aft::dtype::f32, backward) > 10);
    // One for all queries hides keys, and the outside stays the same for all rows.
    const auto keys_masked = [](index_t T) {
      setup s = narrow(T);
      s.mask = mask_form::keys;
      return s;
    };
    CHECK(growth(keys_masked, aft::dtype::f32, backward) < 4.5);
  }
}

TEST_CASE("window work: a window that leaves no tile outside is summed pair by pair, without a scan") {
  const auto launches = [](index_t T) {
    const setup s = narrow(T);
    const numbers x = random_numbers(s);
    const long before = emulator::memory().launches;
    (void)run_forward(aft::dtype::f32, s, x, aft::cuda{});
    return emulator::memory().launches - before;
  };
  CHECK(launches(48) == 2);  // the fold, and what it leaves to the exact sums
  CHECK(launches(96) == 4);
}
