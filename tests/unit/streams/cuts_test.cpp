// SPDX-License-Identifier: Apache-2.0
// Streams: every cutting of a sequence into calls gives the same bits, within the bound of any call.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "engines/engines.hpp"
#include "call/cases.hpp"
#include "harness/harness.hpp"

namespace {

using namespace aft::test;
using aft::dtype;
using aft::index_t;

/// Every operator and kind of bias on T positions.
std::vector<setup> calls(index_t T) {
  call_list list{.base{.B = 2,
                       .Tq = T,
                       .Tk = T,
                       .d = 36,
                       .hk = 12,
                       .H = 3,
                       .n = 2,
                       .win = {6, 2},
                       .grid = {T},
                       .taps = {5},
                       .causal = true},
                 .all{}};
  list.add(op::simple, bias_form::dense_htt);
  list.add(op::full, bias_form::dense_bhtt);
  list.add(op::full, bias_form::factorized_mixed);
  for (auto outside : {aft::outside::zero_bias, aft::outside::excluded}) {
    list.add(op::local, bias_form::dense_htt, outside);
    list.add(op::local, bias_form::dense_tt, outside).win = {60, -3};
    list.add(op::local, bias_form::banded_htj, outside).win = {0, 0};
    list.add(op::local, bias_form::banded_tj, outside).win = {-1, 0};
    list.add(op::local, bias_form::factorized_tn, outside).win = {-3, 9};
    list.add(op::local, bias_form::banded_htj, outside).H = 36;
    list.add(op::conv, bias_form::dense_htt, outside);
    list.add(op::conv, bias_form::dense_htt, outside).taps = {1};
    list.add(op::conv, bias_form::dense_htt, outside).taps = {0};
  }
  return list.all;
}

/// Parts of 1 to `most` positions that add up to T or more.
std::vector<index_t> random_cuts(std::mt19937& random, index_t T, index_t most) {
  std::vector<index_t> cuts;
  for (index_t left = T; left > 0; left -= cuts.back())
    cuts.push_back(std::uniform_int_distribution<index_t>(1, std::min(most, left))(random));
  return cuts;
}

/// The bits of several cuttings, with any number of threads, against those of one call, and these against the
/// reference.
void check_cuttings(dtype type, setup s, const numbers& x) {
  std::mt19937 random(s.seed);
  const index_t T = completed(s).Tq;
  s.cuts = {T};
  check_forward(type, s, x);
  for_each_engine(type, [&] {
    s.cuts = {T};
    const results whole = run_forward(type, s, x);
    for (index_t most : {index_t{3}, T}) {
      s.cuts = random_cuts(random, T, most);
      any_executor exec = default_executor();
      if (!on_device()) exec = aft::cpu{.threads = static_cast<int>(most % 4) + 1};
      const std::string difference = first_difference(whole, run_forward(type, s, x, exec));
      CHECK_MESSAGE(difference.empty(), difference, ' ', describe(completed(s), type));
    }
  });
}

}  // namespace

TEST_CASE("streams: every operator, bias, type and cutting") {
  if (!first_run()) return;
  unsigned seed = 1;
  for (index_t T : {1, 70})
    for (setup s : calls(T)) {
      s.seed = seed++;
      s.gate_fn = static_cast<aft::gate>(seed % 6);
      s.save = seed % 3 != 0;
      s.narrow_average = seed % 2 == 0;
      s.in_place = seed % 5 == 0;
      check_cuttings(all_types[seed % 4], s, random_numbers(s));
    }
}

TEST_CASE("streams: whole vectors, many of them, and layouts") {
  if (!first_run()) return;
  unsigned seed = 1;
  for (auto form : {layout::row_major, layout::padded, layout::channels_first, layout::misaligned, layout::reversed})
    for (setup s : calls(66)) {
      s.seed = seed++;
      s.B = 1;
      s.d = 80;
      s.hk = seed % 2 == 0 ? 80 : 5;
      s.H = s.H == 36 ? 20 : 5;
      s.save = s.has_lse();
      if (form != layout::row_major && seed % 6 != 0) continue;
      s.inputs = s.outputs = form;
      check_cuttings(all_types[seed % 4], s, random_numbers(s));
    }
}

TEST_CASE("streams: heads of more channels than go through a block of positions together") {
  if (!first_run()) return;
  call_list list{.base{.Tq = 70, .Tk = 70, .d = 600, .hk = 600, .H = 1, .grid = {70}, .taps = {5}, .causal = true},
                 .all{}};
  list.add(op::full, bias_form::dense_tt);
  list.add(op::local, bias_form::banded_tj).win = {66, 0};
  list.add(op::conv, bias_form::dense_htt);
  unsigned seed = 1;
  for (setup s : list.all) {
    s.seed = seed++;
    s.save = true;
    for (dtype type : {dtype::f32, dtype::f64}) check_cuttings(type, s, random_numbers(s));
  }
}

TEST_CASE("streams: rows of padding move nothing") {
  if (!first_run()) return;
  unsigned seed = 1;
  for (setup s : calls(33)) {
    s.seed = seed++;
    s.B = 3;
    s.query_lengths = true;
    numbers x = random_numbers(s);
    // What padding holds is not read, and neither are keys and values there.
    for (index_t b = 0; b < s.B; ++b) {
      const index_t from = std::clamp<index_t>(x.query_lengths[static_cast<std::size_t>(b)], 0, s.Tq);
      const auto poison = [&](std::vector<double>& rows, index_t channels) {
        std::fill(rows.begin() + (b * s.Tk + from) * channels, rows.begin() + (b + 1) * s.Tk * channels,
                  std::numeric_limits<double>::quiet_NaN());
      };
      poison(x.k, s.hk);
      poison(x.v, s.d);
    }
    check_cuttings(all_types[seed % 4], s, x);
  }
}

TEST_CASE("streams: any size of number") {
  if (!first_run()) return;
  unsigned seed = 1;
  for (double k_scale : {1.0, 40.0, 700.0, 3e4, 1e38})
    for (double w_scale : {1.0, 60.0, 3000.0, 1e37})
      for (setup s : calls(40)) {
        if (++seed % 5 != 0) continue;
        s.B = 1;
        s.seed = seed;
        s.d = s.hk = 6;
        s.H = s.H == 36 ? 6 : s.H;
        s.k_scale = k_scale;
        s.w_scale = w_scale;
        s.v_scale = seed % 2 == 0 ? 1 : seed % 4 == 1 ? 1e-37 : 1e37;
        check_cuttings(seed % 5 == 0 ? dtype::f64 : dtype::f32, s, random_numbers(s));
        if (seed % 4 != 0 || k_scale > 1e30) continue;
        s.v_scale = seed % 8 == 0 ? 1e-300 : 1e300;
        check_cuttings(dtype::f64, s, random_numbers(s));
      }
}

TEST_CASE("streams: keys that rise, fall and jump, so that references move") {
  if (!first_run()) return;
  unsigned seed = 1;
  for (double step : {0.5, 30.0, -30.0, 400.0, -400.0})
    for (setup s : calls(140)) {
      s.seed = seed++;
      s.B = 1;
      s.d = s.hk = 3;
      s.H = s.H == 36 ? 3 : s.H;
      if (seed % 2 == 0) continue;
      numbers x = random_numbers(s);
      for (index_t t = 0; t < s.Tk; ++t)
        for (index_t c = 0; c < s.hk; ++c) x.k[static_cast<std::size_t>(t * s.hk + c)] += step * static_cast<double>(t);
      check_cuttings(seed % 3 == 0 ? dtype::f64 : dtype::f32, s, x);
    }
}

TEST_CASE("streams: hidden keys, and NaN and infinities in what a row sees") {
  if (!first_run()) return;
  unsigned seed = 1;
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {-inf, inf, nan, -1e9})
    for (setup s : calls(50)) {
      s.seed = seed++;
      s.B = 1;
      s.d = s.hk = 6;
      s.H = s.H == 36 ? 6 : s.H;
      numbers x = random_numbers(s);
      std::mt19937 random(seed);
      const auto some = [&](std::vector<double>& values, double value, std::size_t every) {
        for (double& e : values)
          if (random() % every == 0) e = value;
      };
      some(x.k, bad, bad == -inf || bad == -1e9 ? 3 : 200);
      if (seed % 2 == 0) some(x.v, bad == -1e9 ? 0 : bad, 150);
      if (seed % 3 == 0 && bad < 0)
        for (auto* w : {&x.w, &x.r}) some(*w, -inf, 3);
      // A value behind a hidden key is never seen.
      for (std::size_t i = 0; i < x.k.size(); ++i)
        if (x.k[i] == -inf) x.v[i] = nan;
      check_cuttings(seed % 3 == 0 ? dtype::f64 : dtype::f32, s, x);
    }
}

TEST_CASE("streams: prompts, a few of whose channels hold numbers that go position by position") {
  if (!first_run()) return;
  unsigned seed = 1;
  constexpr index_t T = 170;
  for (double far : {1.0, 1e30})
    for (setup s : calls(T)) {
      s.seed = seed++;
      if (s.H == 36 || s.taps[0] < 5 || seed % 2 == 0) continue;
      s.B = 1;
      s.d = 72;
      s.hk = seed % 4 == 1 ? 72 : 36;
      s.H = 1;
      if (s.call == op::local) s.win.before += 25;
      if (s.call == op::conv) s.taps = {32};
      s.gate_fn = static_cast<aft::gate>(seed % 6);
      s.save = seed % 3 == 0;
      s.in_place = seed % 5 == 0;
      numbers x = random_numbers(s);
      std::mt19937 random(seed);
      for (int i = 0; i < 2; ++i) {
        const index_t c = std::uniform_int_distribution<index_t>(0, s.hk - 1)(random);
        for (index_t t = std::uniform_int_distribution<index_t>(0, T - 1)(random); t < T; t += 70) {
          x.k[static_cast<std::size_t>(t * s.hk + c)] = -far;
          x.v[static_cast<std::size_t>(t * s.d + c)] *= far;
        }
      }
      check_cuttings(seed % 7 == 0 ? dtype::f64 : dtype::f32, s, x);
    }
}

TEST_CASE("streams: prompts in place of q, whose rows go position by position after all") {
  if (!first_run()) return;
  constexpr index_t T = 170;
  call_list list{.base{.Tq = T,
                       .Tk = T,
                       .d = 72,
                       .hk = 72,
                       .H = 1,
                       .win = {40, 0},
                       .grid = {T},
                       .taps = {32},
                       .causal = true,
                       .in_place = true},
                 .all{}};
  list.add(op::simple, bias_form::dense_htt);
  list.add(op::local, bias_form::banded_tj);
  list.add(op::conv, bias_form::dense_htt);
  unsigned seed = 1;
  for (setup s : list.all)
    for (auto gate_fn : {aft::gate::sigmoid, aft::gate::silu})
      for (index_t c : {index_t{0}, s.d - 1}) {
        s.seed = seed++;
        s.gate_fn = gate_fn;
        numbers x = random_numbers(s);
        // Late in a burst, when results of its first rows are known.
        for (index_t t : {index_t{63}, index_t{120}, index_t{160}}) x.k[static_cast<std::size_t>(t * s.hk + c)] = -1e30;
        check_cuttings(dtype::f32, s, x);
      }
}
