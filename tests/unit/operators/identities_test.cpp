// SPDX-License-Identifier: Apache-2.0
// What the operators have in common: the same numbers reached in two ways, each within the bound of one oracle.
#include <doctest/doctest.h>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;
using aft::window;

namespace {

/// The result of `s` with `x` must be what the oracle says about `as` with `y`, forward and in the gradients of q, k,
/// v.
void expect_same(setup s, const numbers& x, setup as, const numbers& y) {
  s.save = as.save = s.has_lse() && as.has_lse();
  for (auto type : all_types) {
    if (!concerns(type, s)) continue;
    auto forward = evaluate_forward(type, as, y);
    forward.pair_error = pair_error(type, s);
    expect_within(type, s, run_forward(type, s, x), forward);
    auto got = run_backward(type, s, x);
    auto oracle = evaluate_backward(type, as, y);
    allow_products(type, s, oracle);
    // The gradients of two kinds of bias have different shapes; they are compared in other tests.
    for (auto bias_part : {&results::dw, &results::du, &results::df, &results::dr}) {
      (got.*bias_part).clear();
      for (results* r : {&oracle.value, &oracle.naive, &oracle.scale, &oracle.terms}) (r->*bias_part).clear();
    }
    expect_within(type, s, got, oracle);
  }
}

}  // namespace

TEST_CASE("identities: a window over the whole sequence makes local full") {
  for (bool causal : {false, true})
    for (auto form : {bias_form::dense_htt, bias_form::factorized_htn})
      for (auto out : {outside::zero_bias, outside::excluded}) {
        const setup full{.B = 2, .Tq = 21, .Tk = 21, .d = 6, .H = 2, .bias = form, .causal = causal, .lengths = true};
        setup local = full;
        local.call = op::local;
        local.win = window{20, 20};
        local.outside = out;
        const numbers x = random_numbers(full);
        expect_same(local, x, full, x);
      }
}

TEST_CASE("identities: strict(0) makes local simple") {
  for (bool causal : {false, true})
    for (auto form : {bias_form::dense_htt, bias_form::banded_htj, bias_form::factorized_tn}) {
      setup simple{.call = op::simple, .B = 2, .Tq = 21, .Tk = 21, .d = 6, .causal = causal};
      setup local = simple;
      local.call = op::local;
      local.win = window::strict(0);
      local.bias = form;
      local.H = 2;
      const numbers x = random_numbers(local);
      expect_same(local, x, simple, x);
    }
}

TEST_CASE("identities: a banded bias is the dense one read along its rows") {
  const index_t T = 18;
  for (auto win : {window{4, 2}, window{-1, 5}, window{30, 30}}) {
    const setup dense{.call = op::local, .B = 2, .Tq = T, .Tk = T, .d = 4, .H = 2, .win = win};
    setup banded = dense;
    banded.bias = bias_form::banded_htj;
    const numbers x = random_numbers(dense);
    numbers y = x;
    y.w.assign(static_cast<std::size_t>(2 * T * win.width()), 7);
    for (index_t row = 0; row < 2 * T; ++row)
      for (index_t j = 0; j < win.width(); ++j) {
        const index_t s = row % T - win.before + j;
        if (s >= 0 && s < T)
          y.w[static_cast<std::size_t>(row * win.width() + j)] = x.w[static_cast<std::size_t>(row * T + s)];
      }
    expect_same(banded, y, dense, x);
  }
}

TEST_CASE("identities: conv is full with the Toeplitz bias") {
  const index_t T = 23;
  for (bool causal : {false, true})
    for (index_t taps : {1, 4, 5}) {
      const setup conv{
          .call = op::conv, .B = 2, .d = 6, .hk = 3, .H = 3, .grid = {T}, .taps = {taps}, .causal = causal};
      setup full{.B = 2, .Tq = T, .Tk = T, .d = 6, .hk = 3, .H = 3, .bias = bias_form::dense_htt, .causal = causal};
      const numbers x = random_numbers(conv);
      numbers y = x;
      const index_t left = causal ? taps - 1 : (taps - 1) / 2;
      y.w.assign(static_cast<std::size_t>(3 * T * T), 0);
      for (index_t h = 0; h < 3; ++h)
        for (index_t t = 0; t < T; ++t)
          for (index_t j = 0; j < taps; ++j) {
            const index_t s = t + j - left;
            if (s >= 0 && s < T)
              y.w[static_cast<std::size_t>((h * T + t) * T + s)] = x.r[static_cast<std::size_t>(h * taps + j)];
          }
      expect_same(conv, x, full, y);
      expect_same(full, y, conv, x);
    }
}

TEST_CASE("identities: a grid of one row, or of one column, is a sequence") {
  const index_t T = 17;
  const setup line{.call = op::conv, .B = 2, .d = 4, .H = 2, .grid = {T}, .taps = {5}};
  const numbers x = random_numbers(line);
  for (auto [grid, taps] : {std::pair<std::vector<index_t>, std::vector<index_t>>{{1, T}, {1, 5}},
                            {{T, 1}, {5, 1}},
                            {{1, 1, T}, {1, 1, 5}},
                            {{T, 1, 1}, {5, 1, 1}}}) {
    setup s = line;
    s.grid = grid;
    s.taps = taps;
    expect_same(s, x, line, x);
  }
}

TEST_CASE("identities: a factorized bias is its dense product") {
  // Small integers: every type and every order of summation holds the products exactly.
  for (auto form : {bias_form::factorized_tn, bias_form::factorized_htn, bias_form::factorized_mixed}) {
    const setup factors{.B = 2, .Tq = 15, .Tk = 19, .d = 6, .H = 3, .bias = form, .n = 4};
    setup dense = factors;
    dense.bias = bias_form::dense_htt;
    numbers x = random_numbers(factors);
    for (auto* f : {&x.u, &x.f})
      for (double& e : *f) e = std::round(2 * e);
    numbers y = x;
    y.w.assign(3 * 15 * 19, 0);
    for (index_t h = 0; h < 3; ++h)
      for (index_t t = 0; t < 15; ++t)
        for (index_t s = 0; s < 19; ++s)
          for (index_t n = 0; n < 4; ++n) {
            const index_t hu = form == bias_form::factorized_htn ? h : 0;
            const index_t hv = form == bias_form::factorized_tn ? 0 : h;
            y.w[static_cast<std::size_t>((h * 15 + t) * 19 + s)] +=
                x.u[static_cast<std::size_t>((hu * 15 + t) * 4 + n)] *
                x.f[static_cast<std::size_t>((hv * 19 + s) * 4 + n)];
          }
    setup heads = factors;
    if (form == bias_form::factorized_tn) dense.hk = heads.hk = 6;
    expect_same(heads, x, dense, y);
  }
}

TEST_CASE("identities: bias 0 everywhere makes full simple") {
  for (bool causal : {false, true}) {
    const setup simple{.call = op::simple, .B = 2, .Tq = 30, .Tk = 30, .d = 5, .causal = causal};
    setup full = simple;
    full.call = op::full;
    full.bias = bias_form::dense_tt;
    numbers x = random_numbers(full);
    x.w.assign(x.w.size(), 0);
    expect_same(full, x, simple, x);
  }
}

TEST_CASE("identities: gate none gives the average, identity gives q times it, and none does not look at q") {
  for (op call : {op::full, op::local, op::simple, op::conv}) {
    const setup s{.call = call,
                  .B = 2,
                  .Tq = 12,
                  .Tk = 12,
                  .d = 4,
                  .win = {2, 2},
                  .grid = {12},
                  .taps = {3},
                  .gate_fn = gate::none};
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
      if (!concerns(type, s)) continue;
      const results none = run_forward(type, s, x);
      CHECK(none.y == none.average);
      numbers y = x;
      for (double& e : y.q) e = std::numeric_limits<double>::quiet_NaN();
      CHECK(first_difference(none, run_forward(type, s, y)) == "");
      CHECK(first_difference(run_backward(type, s, x), run_backward(type, s, y)) == "");
      setup linear = s;
      linear.gate_fn = gate::identity;
      y = x;
      for (double& e : y.q) e = 1;
      CHECK(run_forward(type, linear, y).y == none.y);
    }
  }
}
