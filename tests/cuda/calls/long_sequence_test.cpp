// SPDX-License-Identifier: Apache-2.0
// Sequences whose folds take every level of aft/cuda/fold/runs.cuh: runs of several tiles or chunks in several warps.
#include <doctest/doctest.h>

#include <aft/aft.hpp>

#include <cstddef>
#include <vector>

#include "engines/own_engine.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

std::vector<setup> calls(index_t T, index_t B, index_t d) {
  std::vector<setup> all;
  for (bool causal : {false, true}) {
    all.push_back({.call = op::simple, .B = B, .Tq = T, .Tk = T, .d = d, .causal = causal});
    all.push_back({.call = op::local,
                   .B = B,
                   .Tq = T,
                   .Tk = T,
                   .d = d,
                   .bias = bias_form::banded_tj,
                   .win = {9, 4},
                   .causal = causal});
    all.push_back({.call = op::conv, .B = B, .d = d, .grid = {T}, .taps = {7}, .causal = causal});
  }
  return all;
}

}  // namespace

TEST_CASE("long sequences: forward and backward, within the tolerance of short ones") {
  // 35 tiles of 32 and 18 chunks of 64: 8 warps, some without a run, and the last tile is not full.
  for (const setup& s : calls(1100, 1, 1)) {
    const numbers x = random_numbers(s);
    const auto type = aft::dtype::f32;
    expect_within(type, s, run_forward(type, s, x, aft::cuda{}), evaluate_forward(type, s, x));
    expect_within(type, s, run_backward(type, s, x, aft::cuda{}, nullptr), evaluate_backward(type, s, x));
  }
}

TEST_CASE("long sequences: a batch element alone gives the bits that it gives within the batch") {
  constexpr index_t B = 3, T = 1100, d = 12;  // 36 columns are more than a warp has
  for (setup s : calls(T, B, d)) {
    s.save = false;
    const numbers x = random_numbers(s);
    setup one = s;
    one.B = 1;
    const auto part = [](const auto& all) {
      const auto n = all.size() / B;
      return std::remove_cvref_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(n),
                                                all.begin() + static_cast<std::ptrdiff_t>(2 * n));
    };
    numbers y = x;
    for (auto own : {&numbers::q, &numbers::k, &numbers::v, &numbers::dy}) y.*own = part(x.*own);
    const auto type = aft::dtype::f32;
    CAPTURE(describe(s, type));
    CHECK(part(run_forward(type, s, x, aft::cuda{}).y) == run_forward(type, one, y, aft::cuda{}).y);
    const results whole = run_backward(type, s, x, aft::cuda{}, nullptr);
    const results alone = run_backward(type, one, y, aft::cuda{}, nullptr);
    for (auto own : {&results::dq, &results::dk, &results::dv}) CHECK(part(whole.*own) == alone.*own);
  }
}
