// SPDX-License-Identifier: Apache-2.0
// Every call keeps to the stack that the documentation promises, on the calling thread and on its team's. The build
// runs this with OMP_STACKSIZE at the limit, so that a team's stacks end there.
#include <doctest/doctest.h>

#include <array>
#include <utility>
#include <vector>

#include "engines/engine.hpp"

#include "call/cases.hpp"
#include "harness/harness.hpp"
#include "painted_stack.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// The call, forward or backward, by one thread and by two.
void check_stack(aft::dtype type, const setup& s, const numbers& x) {
  for (int threads = 1; threads <= 2; ++threads) {
    for (const bool backward : {false, true}) {
      results got;  // given back by this thread: what it frees is no part of the call
      const stack_use use = measure_stack([&] {
        const any_executor exec = aft::cpu{.threads = threads};
        got = backward ? run_backward(type, s, x, exec) : run_forward(type, s, x, exec);
      });
      CHECK_MESSAGE(use.caller <= stack_limit, describe(s, type), backward ? " backward" : " forward", ", ", threads);
      CHECK_MESSAGE(use.worker <= stack_limit, describe(s, type), backward ? " backward" : " forward", ", ", threads);
    }
  }
}

void check_stack(setup s) {
  // With what the caller saved, rows' weights come from there; without, from a forward pass and from scratch.
  for (s.save = true;; s.save = false) {
    const setup full = completed(s);
    const numbers x = random_numbers(full);
    for (const aft::dtype type : all_types) check_stack(type, full, x);
    if (!s.save) return;
  }
}

/// Every operator on more channels than the widest group of lane tiles has, and not a whole number of vectors: what
/// cannot be used where it lies is staged.
std::vector<setup> wide(const setup& base) {
  std::vector<setup> all;
  const auto add = [&](op call, bias_form form, aft::window win = {}) {
    all.push_back(base);
    all.back().call = call;
    all.back().bias = form;
    all.back().win = win;
  };
  add(op::full, bias_form::dense_htt);
  add(op::full, bias_form::factorized_htn);
  add(op::local, bias_form::dense_tt, {4, 3});
  add(op::local, bias_form::banded_htj, {4, 3});
  add(op::local, bias_form::factorized_tn, {30, 20});
  add(op::simple, bias_form::dense_htt);
  add(op::conv, bias_form::dense_htt);
  add(op::conv, bias_form::dense_htt);
  all.back().grid = {6, 6};
  all.back().taps = {3, 5};
  return all;
}

const setup base{.B = 1, .Tq = 40, .Tk = 40, .d = 420, .H = 2, .grid = {40}, .taps = {7}};

}  // namespace

TEST_CASE("Every operator and form of bias") {
  for (const bool causal : {false, true})
    for (const setup& s : every_operator(causal)) check_stack(s);
}

TEST_CASE("Many channels") {
  for (const setup& s : wide(base)) check_stack(s);
}

TEST_CASE("Many channels that share keys and heads, causal") {
  setup s = base;
  s.hk = 60;
  s.causal = true;
  for (setup one : wide(s)) {
    if (one.grid.size() > 1) one.causal = false;  // only a sequence has an order
    check_stack(one);
  }
}

TEST_CASE("Other layouts, masks and lengths") {
  setup s = base;
  s.d = 100;
  s.inputs = s.outputs = layout::channels_first;
  s.lengths = true;
  for (setup one : wide(s)) {
    one.mask = one.call == op::conv ? mask_form::batch_keys : mask_form::batch_pairs;
    if (one.call == op::simple) one.mask = mask_form::keys;
    check_stack(one);
  }
}

TEST_CASE("Numbers that take the exact sums") {
  setup s = base;
  s.d = 70;
  s.k_scale = 400;
  s.w_scale = 400;
  s.outside = aft::outside::excluded;
  for (const setup& one : wide(s)) check_stack(one);
  s.outside = aft::outside::zero_bias;
  s.causal = true;
  for (setup one : wide(s)) {
    if (one.grid.size() > 1) one.causal = false;
    check_stack(one);
  }
}

TEST_CASE("Calls beside the operators") {
  std::array<float, 48> r{}, out{}, back{};
  std::array<float, 2> gain{1, 1}, shift{}, dgain{}, dshift{};
  r[1] = 1;
  std::array<float, 400> w{}, map{};
  std::array<float, 20> keys{};
  const stack_use use = measure_stack([&] {
    const aft::tensor_view<const float, 2> taps{r.data(), {2, 24}};
    const aft::tensor_view<float, 2> to{out.data(), {2, 24}}, gradient{back.data(), {2, 24}};
    const aft::tensor_view<const float, 1> g{gain.data(), {2}}, b{shift.data(), {2}};
    aft::reparameterize(taps, g, b, to);
    aft::reparameterize_backward(taps, g, b, taps, gradient, aft::tensor_view<float, 1>{dgain.data(), {2}},
                                 aft::tensor_view<float, 1>{dshift.data(), {2}});
    const aft::tensor_view<const float, 3> key{keys.data(), {1, 20, 1}};
    aft::attention_map(key, aft::dense_bias{aft::tensor_view<const float, 2>{w.data(), {20, 20}}},
                       aft::tensor_view<float, 4>{map.data(), {1, 20, 20, 1}});
  });
  CHECK(use.caller <= stack_limit);
  CHECK(use.worker <= stack_limit);
}
