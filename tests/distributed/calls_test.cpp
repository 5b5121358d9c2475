// SPDX-License-Identifier: Apache-2.0
// Cut calls against the reference of the whole call, by the tolerances of every other test.
#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

#include "call/cases.hpp"
#include "engines/own_engine.hpp"
#include "split_call.hpp"

using namespace aft::test;
using aft::dtype;
using aft::index_t;

namespace {

constexpr int ranks[] = {1, 2, 3, 5, 8};

/// A random call of `call` without what cut calls refuse.
setup random_call(op call, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](index_t n) { return static_cast<index_t>(random() % static_cast<std::uint64_t>(n + 1)); };
  setup s;
  s.call = call;
  s.seed = seed;
  s.B = 1 + up_to(2);
  s.d = 12;
  const index_t divisors[] = {1, 2, 3, 4, 6, 12};
  s.H = divisors[up_to(5)];
  s.hk = divisors[up_to(5)];
  s.Tq = s.Tk = 1 + up_to(32);
  if (up_to(3) == 0) s.Tk = 1 + up_to(32);
  s.causal = up_to(1) == 0;
  const mask_form masks[] = {mask_form::none,  mask_form::none,        mask_form::none,
                             mask_form::keys,  mask_form::batch_keys,  mask_form::flat_keys,
                             mask_form::pairs, mask_form::batch_pairs, mask_form::flat_pairs};
  s.mask = masks[up_to(8)];
  s.lengths = up_to(3) == 0;
  s.query_lengths = up_to(3) == 0;
  s.outside = up_to(3) == 0 ? aft::outside::excluded : aft::outside::zero_bias;
  s.gate_fn = static_cast<aft::gate>(up_to(5));
  s.inputs = static_cast<layout>(up_to(6));
  s.outputs = static_cast<layout>(up_to(5));
  const double scales[] = {1, 1, 10, 50, 200};
  s.k_scale = scales[up_to(4)];
  s.w_scale = scales[up_to(4)];
  s.v_scale = up_to(2) == 0 ? 100 : 1;
  s.save = up_to(1) == 0;
  s.narrow_average = up_to(1) == 0;
  s.in_place = up_to(4) == 0;
  s.n = 1 + up_to(4);
  s.win = {up_to(9) - 2, up_to(9) - 2};
  if (s.win.width() < 0) s.win = aft::window::strict(up_to(20));
  if (call == op::full) s.bias = static_cast<bias_form>(up_to(6));
  if (call == op::local) s.bias = static_cast<bias_form>(up_to(8));
  if (call == op::conv) {
    const index_t axes = s.causal ? 1 : 1 + up_to(2);
    for (index_t i = 0; i < axes; ++i) {
      s.grid.push_back(axes == 1 ? s.Tk : 1 + up_to(i == 0 ? 7 : 3));
      s.taps.push_back(1 + up_to(axes == 1 ? 9 : 4));
    }
    if (axes == 1) s.queries = s.Tq;
  }
  return s;
}

void check_random(op call, unsigned first, unsigned count) {
  constexpr dtype types[] = {dtype::f32, dtype::bf16, dtype::f64, dtype::f16};
  for (unsigned i = 0; i < count; ++i) {
    const setup s = random_call(call, first + i);
    check_split(types[i % 4], s, random_numbers(s), random_lengths(s, ranks[i / 4 % 5], first + i));
  }
}

}  // namespace

TEST_CASE("cut calls: full") {
  check_random(op::full, 1000, 60);
}
TEST_CASE("cut calls: simple") {
  check_random(op::simple, 2000, 90);
}
TEST_CASE("cut calls: local") {
  check_random(op::local, 3000, 120);
}
TEST_CASE("cut calls: conv") {
  check_random(op::conv, 4000, 120);
}

TEST_CASE("cut calls: grids without cells, filters without taps, batches without elements") {
  for (const index_t B : {index_t{0}, index_t{1}})
    for (const auto& [grid, taps] :
         std::vector<std::pair<std::vector<index_t>, std::vector<index_t>>>{{{4, 3}, {0, 3}},
                                                                            {{4, 3}, {2, 0}},
                                                                            {{4, 0}, {2, 3}},
                                                                            {{0, 3}, {2, 3}},
                                                                            {{4, 3}, {2, 1}},
                                                                            {{5}, {0}},
                                                                            {{5}, {3}}})
      for (const int parts : {2, 3}) {
        setup s = random_call(op::conv, 5100);
        s.B = B;
        s.causal = false;
        s.mask = mask_form::none;
        s.lengths = s.query_lengths = s.in_place = false;
        s.grid = grid;
        s.taps = taps;
        CAPTURE(B);
        CAPTURE(grid[0]);
        CAPTURE(taps[0]);
        check_split(dtype::f64, s, random_numbers(s), random_lengths(s, parts, 5));
      }
}

TEST_CASE("cut calls: full by blocks of batch elements") {
  // With so many channels keys of some elements move while others are worked on.
  for (unsigned seed = 5000; seed < 5016; ++seed) {
    setup s = random_call(op::full, seed);
    s.B = 3 + static_cast<index_t>(seed % 3);
    s.d = 1536;
    s.Tq = 1 + s.Tq % 7;
    s.Tk = seed % 2 == 0 ? s.Tq : 1 + s.Tk % 7;
    s.bias = static_cast<bias_form>(seed % 7);
    s.lengths = s.query_lengths = seed % 3 == 0;
    constexpr dtype types[] = {dtype::f32, dtype::bf16};
    const split_lengths cut = random_lengths(s, 3, seed);
    CAPTURE(seed);
    check_split(types[seed % 2], s, random_numbers(s), cut);
  }
}

TEST_CASE("cut calls: the same bits whenever messages move") {
  for (const op call : {op::full, op::simple, op::local, op::conv}) {
    for (unsigned seed = 6000; seed < 6020; ++seed) {
      const setup s = random_call(call, seed);
      const numbers x = random_numbers(s);
      const split_lengths cut = random_lengths(s, ranks[1 + seed % 4], seed);
      const results forward = split_forward(dtype::f32, s, x, cut).joint,
                    backward = split_backward(dtype::f32, s, x, cut).joint;
      messages_wait() = true;
      CHECK(first_difference(forward, split_forward(dtype::f32, s, x, cut).joint) == "");
      CHECK(first_difference(backward, split_backward(dtype::f32, s, x, cut).joint) == "");
      messages_wait() = false;
    }
  }
}
