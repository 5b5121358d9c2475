// SPDX-License-Identifier: Apache-2.0
// Long sequences in a counted resource: scratch is O(T d), never O(T^2).
#include <doctest/doctest.h>

#include <string>

#include "harness/harness.hpp"
#include "memory.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

constexpr index_t T = 65536;

/// The contract: O(T d) beside tile buffers of at most 64 MiB a call. What O(T d) holds is counted in arrays of T d
/// arithmetic numbers. Forward: exp(k) v and exp(k), packed side by side, and prefix and suffix folds of three numbers
/// each; 8 in all. Backward: the same again for the two payloads g and g o, lse and average recomputed, and the
/// gradient of shared keys per value channel; 16 in all.
constexpr std::size_t tiles = std::size_t{64} << 20;
std::size_t bound(const setup& s, std::size_t arrays) {
  return arrays * static_cast<std::size_t>(completed(s).Tk * s.d) * sizeof(float) + tiles;
}

void expect_linear_memory(const setup& s) {
  const numbers x = random_numbers(s);
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  counting_resource memory;
  const aft::cpu exec{.memory = &memory};
  const results forward = run_forward(aft::dtype::f32, s, x, exec);
  const std::size_t forward_peak = memory.peak();
  MESSAGE(describe(completed(s), aft::dtype::f32), ": forward scratch ", mib(forward_peak), " MiB");
  CHECK(forward_peak <= bound(s, 8));
  CHECK(memory.in_use() == 0);
  for (bool given : {true, false}) {
    counting_resource backward_memory;
    setup call = s;
    call.save = given;
    const results backward = run_backward(aft::dtype::f32, call, x, aft::cpu{.memory = &backward_memory}, &forward);
    MESSAGE("backward scratch, lse and average ", std::string(given ? "given: " : "recomputed: "),
            mib(backward_memory.peak()), " MiB");
    CHECK(backward_memory.peak() <= bound(s, 16));
    CHECK(backward_memory.in_use() == 0);
    CHECK(backward.damage == "");
    // Gradients of a softmax over the keys add up to 0: sum_s dk[s,c] = sum_s dw[t,s] = 0 up to rounding.
    CHECK(std::isfinite(backward.dk[0]));
    if (s.call == op::full) break;  // the recomputed call costs another O(T^2) forward
  }
}

}  // namespace

TEST_CASE("memory at T = 32768: full with a factorized bias") {
  // Half the length and few channels: T² (d + n) multiply-adds are what the test takes its time for.
  constexpr index_t half = T / 2;
  expect_linear_memory({.B = 1, .Tq = half, .Tk = half, .d = 16, .bias = bias_form::factorized_tn, .n = 16});
}

TEST_CASE("memory at T = 65536: local with window 32") {
  expect_linear_memory({.call = op::local,
                        .B = 1,
                        .Tq = T,
                        .Tk = T,
                        .d = 64,
                        .bias = bias_form::banded_tj,
                        .win = aft::window::strict(32)});
  expect_linear_memory({.call = op::local,
                        .B = 1,
                        .Tq = T,
                        .Tk = T,
                        .d = 64,
                        .bias = bias_form::banded_tj,
                        .win = aft::window::strict(32),
                        .causal = true});
}

TEST_CASE("memory at T = 32768: local with window 256 on few channels") {
  // Sums of all pairs inside the window would take as much as the gradient of the bias, 64 MiB.
  expect_linear_memory({.call = op::local,
                        .B = 1,
                        .Tq = T / 2,
                        .Tk = T / 2,
                        .d = 4,
                        .bias = bias_form::banded_tj,
                        .win = aft::window::strict(256)});
}

TEST_CASE("memory at T = 65536: simple and conv") {
  expect_linear_memory({.call = op::simple, .B = 1, .Tq = T, .Tk = T, .d = 64});
  expect_linear_memory({.call = op::simple, .B = 1, .Tq = T, .Tk = T, .d = 64, .causal = true});
  expect_linear_memory({.call = op::conv, .B = 1, .d = 64, .hk = 4, .H = 4, .grid = {T}, .taps = {32}, .causal = true});
  expect_linear_memory({.call = op::conv, .B = 1, .d = 64, .H = 64, .grid = {256, 256}, .taps = {5, 5}});
}
