// SPDX-License-Identifier: Apache-2.0
// A row that sees nothing is 0; NaN and infinity that a row does see stay in that row.
#include <doctest/doctest.h>

#include <algorithm>

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
    for (const aft::window win : {aft::window{.before = -3, .after = 6}, aft::window{.before = 40, .after = -30}})
      check({.call = op::local,
             .B = 2,
             .Tq = 20,
             .Tk = 20,
             .d = 4,
             .H = 2,
             .bias = form,
             .win = win,
             .outside = outside::excluded});
  }
}

TEST_CASE("empty rows: no keys at all") {
  for (op call : {op::full, op::simple, op::local})
    for (auto form : {bias_form::dense_htt, bias_form::factorized_htn})
      for (bool causal : {false, true})
        // Channels of more than one block too, which begin somewhere behind memory that is not there.
        for (index_t d : {4, 1024}) {
          setup s{.call = call, .B = 2, .Tq = 5, .Tk = 0, .d = d, .H = 2, .bias = form, .causal = causal};
          if (call == op::local) s.win = aft::window::strict(2);
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
  struct place {
    std::vector<double> numbers::*tensor;
    double value;
  };
  // Of q and of factors NaN alone: their infinity takes the other sign where it is multiplied by a negative number.
  const place places[] = {{&numbers::v, not_a_number}, {&numbers::v, infinity},     {&numbers::k, not_a_number},
                          {&numbers::k, infinity},     {&numbers::q, not_a_number}, {&numbers::w, not_a_number},
                          {&numbers::w, infinity},     {&numbers::u, not_a_number}, {&numbers::f, not_a_number},
                          {&numbers::r, not_a_number}, {&numbers::r, infinity}};
  for (bool causal : {false, true})
    for (const setup& s : every_operator(causal))
      for (const place& put : places) {
        numbers x = random_numbers(s);
        std::vector<double>& tensor = x.*put.tensor;
        if (tensor.empty()) continue;
        const bool has_positions = put.tensor == &numbers::q || put.tensor == &numbers::k || put.tensor == &numbers::v;
        const auto channels = tensor.size() / static_cast<std::size_t>(s.B * s.Tq);
        tensor[has_positions ? 9 * channels + 1 : tensor.size() / 2] = put.value;
        CAPTURE(describe(s, aft::dtype::f32));
        for (auto type : all_types) {
          check_forward(type, s, x);
          check_backward(type, s, x);
        }
      }
}
