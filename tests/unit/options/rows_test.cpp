// SPDX-License-Identifier: Apache-2.0
// A row that sees nothing is 0; NaN and infinity that a row does see stay in that row.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "call/cases.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;
using aft::outside;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

bool all_equal(const std::vector<long double>& x, double value) {
  return std::all_of(x.begin(), x.end(), [&](long double e) { return e == value; });
}

}  // namespace

TEST_CASE("empty rows: average 0, lse -inf and gradients exactly 0, by mask, lengths, bias or keys of -inf") {
  const auto every_row_is_empty = [](const setup& s, const numbers& x) {
    for (auto type : all_types) {
      if (!concerns(type, s)) continue;
      CAPTURE(describe(s, type));
      check_forward(type, s, x);
      check_backward(type, s, x);
      const results forward = run_forward(type, s, x);
      CHECK(all_equal(forward.y, 0));
      CHECK(all_equal(forward.average, 0));
      CHECK(all_equal(forward.lse, -infinity));
      const results backward = run_backward(type, s, x);
      for (auto gradient :
           {&results::dq, &results::dk, &results::dv, &results::dw, &results::du, &results::df, &results::dr})
        CHECK(all_equal(backward.*gradient, 0));
    }
  };
  for (const setup& s : every_operator()) {
    setup hidden = s;
    hidden.mask = mask_form::batch_pairs;
    numbers x = random_numbers(hidden);
    x.mask.assign(x.mask.size(), 0);
    every_row_is_empty(hidden, x);
    hidden.mask = mask_form::none;
    hidden.lengths = true;
    x.lengths = {0, 0};
    every_row_is_empty(hidden, x);
    x.k.assign(x.k.size(), -infinity);
    every_row_is_empty(s, x);
    if (s.call == op::full && s.bias == bias_form::dense_htt) {
      x = random_numbers(s);
      x.w.assign(x.w.size(), -infinity);
      every_row_is_empty(s, x);
    }
  }
}

TEST_CASE("empty rows: y is the gate times 0, so a NaN in q shows and an infinite one does not") {
  for (bool causal : {false, true})
    for (setup s : every_operator(causal)) {
      if (s.call == op::conv && causal && s.grid.size() > 1) continue;
      s.lengths = true;
      numbers x = random_numbers(s);
      x.lengths = {0, s.Tk};
      for (auto gate_fn : {aft::gate::sigmoid, aft::gate::identity}) {
        s.gate_fn = gate_fn;
        x.q[1] = not_a_number;
        x.q[2] = gate_fn == aft::gate::identity ? -1 : infinity;
        for (auto type : all_types) check_forward(type, s, x);
      }
    }
}

TEST_CASE("empty rows: a window past the end, with keys outside excluded") {
  for (auto form : {bias_form::dense_htt, bias_form::banded_htj}) {
    check({.call = op::local,
           .B = 2,
           .Tq = 20,
           .Tk = 20,
           .d = 4,
           .H = 2,
           .bias = form,
           .win = {-3, 6},
           .outside = outside::excluded});
    check({.call = op::local,
           .B = 2,
           .Tq = 20,
           .Tk = 20,
           .d = 4,
           .H = 2,
           .bias = form,
           .win = {40, -30},
           .outside = outside::excluded});
  }
}

TEST_CASE("empty rows: no keys at all") {
  for (op call : {op::full, op::simple})
    for (auto form : {bias_form::dense_htt, bias_form::factorized_htn})
      for (bool causal : {false, true}) {
        const setup s{.call = call, .B = 2, .Tq = 5, .Tk = 0, .d = 4, .H = 2, .bias = form, .causal = causal};
        check(s);
        for (auto type : all_types) {
          if (!concerns(type, s)) continue;
          CHECK(all_equal(run_forward(type, s, random_numbers(s)).y, 0));
        }
      }
}

TEST_CASE("empty rows: no queries at all, and keys and values hold anything") {
  for (op call : {op::full, op::simple})
    for (mask_form mask : {mask_form::none, mask_form::keys, mask_form::pairs, mask_form::batch_pairs}) {
      const bool causal = mask == mask_form::keys;
      const setup s{.call = call,
                    .B = 2,
                    .Tq = 0,
                    .Tk = 300,
                    .d = 4,
                    .H = 2,
                    .bias = bias_form::dense_htt,
                    .causal = causal,
                    .mask = mask};
      for (double value : {1., not_a_number, infinity}) {
        numbers x = random_numbers(s);
        x.v[3] = x.v[17] = value;
        if (value != infinity) x.k[5] = value;
        for (auto type : all_types) {
          if (!concerns(type, s)) continue;
          const results got = run_backward(type, s, x);
          CHECK(got.damage == "");
          CHECK(all_equal(got.dk, 0));
          CHECK(all_equal(got.dv, 0));
        }
      }
    }
}

TEST_CASE("in sight: NaN or infinity in k, v, w or q reaches the rows that see it and no other") {
  for (bool causal : {false, true})
    for (const setup& s : every_operator(causal))
      for (double value : {not_a_number, infinity}) {
        const std::vector<std::function<void(numbers&)>> places{
            [&](numbers& x) { x.v[9 * 6 + 2] = value; },
            [&](numbers& x) { x.k[static_cast<std::size_t>(9 * s.hk + 1)] = value; },
            [&](numbers& x) { x.q[9 * 6 + 2] = not_a_number; },
            [&](numbers& x) {
              if (!x.w.empty()) x.w[x.w.size() / 2] = value;
            },
            [&](numbers& x) {
              if (!x.u.empty()) x.u[x.u.size() / 2] = not_a_number;
            },
            [&](numbers& x) {
              if (!x.f.empty()) x.f[x.f.size() / 2] = not_a_number;
            },
            [&](numbers& x) {
              if (!x.r.empty()) x.r[x.r.size() / 2] = value;
            }};
        for (const auto& put : places) {
          numbers x = random_numbers(s);
          put(x);
          for (auto type : all_types) {
            check_forward(type, s, x);
            check_backward(type, s, x);
          }
        }
      }
}
