// SPDX-License-Identifier: Apache-2.0
// Queries that do not stand where the keys do: other numbers of them, the last rows of a sequence, rows of padding.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "call/cases.hpp"
#include "harness/harness.hpp"

namespace {

using namespace aft::test;
using aft::dtype;
using aft::index_t;

/// Every operator and kind of bias with Tq queries from position `first` on, and Tk keys.
std::vector<setup> calls(index_t Tq, index_t Tk, index_t first, bool causal) {
  call_list list{.base{.B = 3,
                       .Tq = Tq,
                       .Tk = Tk,
                       .d = 6,
                       .hk = 3,
                       .H = 3,
                       .n = 2,
                       .win = {4, 3},
                       .grid = {Tk},
                       .taps = {5},
                       .queries = Tq,
                       .causal = causal,
                       .first_query = first},
                 .all{}};
  list.add(op::full, bias_form::dense_htt);
  list.add(op::full, bias_form::factorized_htn);
  list.add(op::simple, bias_form::dense_htt);
  for (auto outside : {aft::outside::zero_bias, aft::outside::excluded}) {
    list.add(op::local, bias_form::dense_htt, outside);
    list.add(op::local, bias_form::banded_htj, outside);
    list.add(op::local, bias_form::factorized_tn, outside).win = {7, -2};
    list.add(op::conv, bias_form::dense_htt, outside);
    list.add(op::conv, bias_form::dense_htt, outside).H = 6;
  }
  return list.all;
}

constexpr index_t far = index_t{1} << 61;

}  // namespace

TEST_CASE("positions: other numbers of queries than of keys, from any position on") {
  unsigned seed = 1;
  for (index_t Tq : {0, 1, 5, 21, 27})
    for (index_t first : {index_t{0}, index_t{1}, index_t{9}, index_t{20}, index_t{30}, far})
      for (bool causal : {false, true})
        for (setup s : calls(Tq, 21, first, causal)) {
          s.seed = seed++;
          s.save = seed % 2 == 0;
          const dtype type = all_types[seed % 4];
          check_both(type, s, random_numbers(s));
        }
}

TEST_CASE("positions: long sequences, many channels, few keys") {
  unsigned seed = 1;
  for (bool causal : {false, true})
    for (index_t d : {18, 40})
      for (setup s : calls(33, 150, 96, causal)) {
        s.seed = seed++;
        s.B = 2;
        s.d = d;
        s.hk = d;
        s.H = s.H == 6 ? d : 2;
        s.save = seed % 2 == 0;
        check_both(all_types[seed % 2], s, random_numbers(s));
        s.Tq = s.queries = 150;
        s.Tk = 40;
        s.grid = {40};
        s.first_query = 3;
        check_both(all_types[seed % 2], s, random_numbers(s));
      }
}

TEST_CASE("positions: lengths, masks and gates beside a first query") {
  unsigned seed = 1;
  for (auto mask :
       {mask_form::none, mask_form::flat_keys, mask_form::batch_keys, mask_form::flat_pairs, mask_form::batch_pairs})
    for (bool lengths : {false, true})
      for (bool causal : {false, true})
        for (setup s : calls(9, 14, 4, causal)) {
          s.seed = seed++;
          s.mask = mask;
          s.lengths = lengths;
          s.query_lengths = seed % 3 == 0;
          s.narrow_integers = seed % 2 == 0;
          s.gate_fn = static_cast<aft::gate>(seed % 6);
          s.save = seed % 5 < 2;
          s.narrow_average = seed % 7 == 0;
          s.in_place = seed % 11 == 0;
          check_both(all_types[seed % 4], s, random_numbers(s));
        }
}

TEST_CASE("positions: rows of padding hold NaN, and so does what they alone see") {
  unsigned seed = 1;
  for (bool causal : {false, true})
    for (bool save : {false, true})
      for (setup s : calls(20, 20, 0, causal)) {
        s.seed = seed++;
        s.query_lengths = true;
        s.save = save;
        s.gate_fn = static_cast<aft::gate>(seed % 6);
        numbers x = random_numbers(s);
        // A padded causal batch: no one tells the keys' lengths, and padding sees only itself.
        if (causal) {
          for (index_t b = 0; b < s.B; ++b) {
            const index_t from = x.query_lengths[static_cast<std::size_t>(b)];
            const auto poison = [&](std::vector<double>& rows, index_t channels) {
              std::fill(rows.begin() + (b * s.Tk + from) * channels, rows.begin() + (b + 1) * s.Tk * channels,
                        std::numeric_limits<double>::quiet_NaN());
            };
            poison(x.k, s.hk);
            poison(x.v, s.d);
          }
        }
        for (dtype type : all_types) check_both(type, s, x);
        // Rows of the bias that are padding in every batch element.
        for (std::int64_t& n : x.query_lengths) n = std::min<std::int64_t>(n, 11);
        const auto poison_rows = [&](std::vector<double>& w, index_t heads, index_t columns) {
          for (index_t h = 0; h < heads && !w.empty(); ++h)
            std::fill(w.begin() + (h * s.Tq + 11) * columns, w.begin() + (h + 1) * s.Tq * columns,
                      std::numeric_limits<double>::quiet_NaN());
        };
        const bool heads = !s.one_head();
        poison_rows(x.w, heads ? s.H : 1, s.bias == bias_form::banded_htj ? s.win.width() : s.Tk);
        poison_rows(x.u, heads ? s.H : 1, s.n);
        check_both(all_types[seed % 4], s, x);
      }
}

TEST_CASE("positions: query lengths on grids, below zero and beyond the rows") {
  for (bool save : {false, true}) {
    const setup s{.call = op::conv,
                  .B = 3,
                  .d = 6,
                  .hk = 3,
                  .H = 3,
                  .grid = {4, 5},
                  .taps = {3, 2},
                  .save = save,
                  .query_lengths = true};
    numbers x = random_numbers(s);
    check_both(dtype::f32, s, x);
    x.query_lengths = {-4, 13, 99};
    for (double& e : x.q) e = e == e ? e : 1;
    for (double& e : x.dy) e = e == e ? e : 1;
    check_both(dtype::f64, s, x);
  }
}

TEST_CASE("positions: the bits of a row of a call do not depend on how many padding rows there are") {
  for (bool causal : {false, true})
    for (setup s : calls(12, 20, 0, causal)) {
      s.query_lengths = true;
      numbers x = random_numbers(s);
      x.query_lengths = {7, 12, 0};
      for (auto* rows : {&x.q, &x.dy})
        for (double& e : *rows) e = e == e ? e : 0.5;
      const results padded = run_backward(dtype::f32, s, x);
      for (auto* rows : {&x.q, &x.dy}) std::fill(rows->begin() + 24 * s.d, rows->end(), 1e30);
      CHECK_MESSAGE(first_difference(padded, run_backward(dtype::f32, s, x)).empty(), describe(s, dtype::f32));
    }
}

TEST_CASE("positions: nothing of padding is read in a given lse and average") {
  for (bool causal : {false, true})
    for (setup s : calls(12, 12, 0, causal)) {
      s.query_lengths = true;
      s.save = true;
      const numbers x = random_numbers(s);
      setup forward = s;
      forward.in_place = false;
      results saved = run_forward(dtype::f32, forward, x);
      const results before = run_backward(dtype::f32, s, x, default_executor(), &saved);
      for (index_t b = 0; b < s.B; ++b) {
        const index_t from = x.query_lengths[static_cast<std::size_t>(b)];
        const auto poison = [&](std::vector<long double>& rows, index_t channels) {
          if (rows.empty()) return;
          std::fill(rows.begin() + (b * s.Tq + from) * channels, rows.begin() + (b + 1) * s.Tq * channels,
                    std::numeric_limits<long double>::quiet_NaN());
        };
        poison(saved.average, s.d);
        poison(saved.lse, s.hk);
      }
      const results after = run_backward(dtype::f32, s, x, default_executor(), &saved);
      CHECK_MESSAGE(first_difference(before, after).empty(), describe(s, dtype::f32));
    }
}
