// SPDX-License-Identifier: Apache-2.0
// Logits that rise or fall steeply along the sequence, past the range of exponentials: what a row subtracts from them
// is not their own maximum then, and the difference may have more digits than a number has.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <utility>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

constexpr index_t T = 40;

/// Every operator whose bias is a number for each pair or tap, and the bias that is none.
std::vector<setup> operators() {
  std::vector<setup> all;
  for (bool causal : {false, true})
    for (auto [call, form] : {std::pair<op, bias_form>{op::full, bias_form::dense_tt},
                              {op::full, bias_form::factorized_tn},
                              {op::local, bias_form::dense_tt},
                              {op::local, bias_form::banded_tj},
                              {op::simple, bias_form::dense_tt},
                              {op::conv, bias_form::dense_tt}}) {
      setup s{.call = call, .B = 1, .Tq = T, .Tk = T, .d = 3, .bias = form, .win = {5, 4}, .grid = {T}, .taps = {7}};
      s.causal = causal;
      all.push_back(s);
    }
  setup plane = all.front();
  plane.call = op::conv;
  plane.grid = {4, T / 4};
  plane.taps = {3, 3};
  all.push_back(plane);
  return all;
}

/// Logits level + step floor(place / run): `run` of them see one another.
struct slope {
  double level, step;
  index_t run;

  double at(index_t place) const { return level + step * static_cast<double>(place / run); }
};

/// On both sides of the borders where a maximum is taken out first. Rows near the top of a column still see sums within
/// 2^-60 of it in float, 2^-480 in double. Half and bfloat16 are summed in float.
std::vector<slope> slopes(aft::dtype type) {
  const bool wide = type == aft::dtype::f64;
  std::vector<slope> all;
  for (auto [level, run] : {std::pair<double, index_t>{0, 1}, {4080, 1}, {1e5, 1}, {4080, 3}, {-2100, 3}, {1e5, 3}}) {
    if (type != arithmetic_of(type) && (level != 4080 || run == 1)) continue;
    for (double step : wide ? std::array{17., 137.5} : std::array{3., 17.}) {
      all.push_back({level, step, run});
      all.push_back({level, -step, run});
    }
  }
  return all;
}

/// With the sums that a forward call saved, and with a backward call's own.
void check_once(aft::dtype type, setup s, const numbers& x) {
  s.save = true;
  check_forward(type, s, x);
  for (bool save : {false, true}) {
    s.save = save;
    check_backward(type, s, x);
  }
}

}  // namespace

TEST_CASE("steep: keys that rise or fall along the sequence") {
  for (const setup& s : operators())
    for (auto type : all_types)
      for (const slope& keys : slopes(type)) {
        numbers x = random_numbers(s);
        for (index_t i = 0; i < std::ssize(x.k); ++i) x.k[static_cast<std::size_t>(i)] += keys.at(i / s.d % T);
        CAPTURE(keys.level);
        CAPTURE(keys.step);
        CAPTURE(keys.run);
        check_once(type, s, x);
      }
}

TEST_CASE("steep: biases that rise or fall along the keys, under keys that oppose them or do not") {
  for (const setup& s : operators()) {
    if (s.call != op::full && s.bias != bias_form::dense_tt) continue;
    if (s.call != op::full && s.call != op::local) continue;
    for (auto type : {aft::dtype::f32, aft::dtype::f64})
      for (const slope& biases : slopes(type))
        for (double follow : {0., -1.}) {
          numbers x = random_numbers(s);
          for (index_t i = 0; i < std::ssize(x.w); ++i) x.w[static_cast<std::size_t>(i)] += biases.at(i % T);
          // One factor of 1 in every row leaves the other as the bias.
          for (index_t i = 0; i < std::ssize(x.u); i += s.n) x.u[static_cast<std::size_t>(i)] = 1;
          for (index_t i = 0; i < std::ssize(x.f); i += s.n) x.f[static_cast<std::size_t>(i)] += biases.at(i / s.n);
          for (index_t i = 0; i < std::ssize(x.k); ++i)
            x.k[static_cast<std::size_t>(i)] += follow * biases.at(i / s.d % T);
          CAPTURE(biases.level);
          CAPTURE(biases.step);
          CAPTURE(biases.run);
          CAPTURE(follow);
          check_once(type, s, x);
        }
  }
}

TEST_CASE("steep: a filter with one tap far above the others, which rows at the border do not see") {
  std::vector<setup> all(5, {.call = op::conv, .B = 2, .d = 3, .grid = {T}, .taps = {7}});
  all[1].causal = true;
  for (std::size_t i : {2U, 3U, 4U}) {
    all[i].grid = {5, T / 5};
    all[i].taps = {3, 5};
  }
  // Channels that share keys and filters: classes of four and of twenty.
  all[3].d = 16;
  all[3].hk = all[3].H = 4;
  all[4].d = 40;
  all[4].hk = all[4].H = 2;
  for (setup s : all)
    for (auto type : {aft::dtype::f32, aft::dtype::f64, aft::dtype::bf16})
      // From where sums are proven by their scale alone, past where they have to show it, to where they cannot.
      for (double height : {24., 36., 48., 60., 72., 84., 96.})
        for (bool first : {false, true}) {
          ++s.seed;
          numbers x = random_numbers(s);
          const std::size_t taps = x.r.size() / static_cast<std::size_t>(completed(s).H);
          const double raised = type == aft::dtype::f64 ? 9 * height : height;
          for (std::size_t j = first ? 0 : taps - 1; j < x.r.size(); j += taps) x.r[j] += raised;
          // Keys so far apart that weights of some are lost in the units of others: a raised tap brings them back.
          if (s.seed % 3 == 0)
            for (auto& key : x.k) key *= 40;
          // Channels of a class so far apart that its sums change their unit on the way.
          if (s.seed % 4 == 1)
            for (index_t i = 0; i < std::ssize(x.v); ++i)
              x.v[static_cast<std::size_t>(i)] *= std::ldexp(1, static_cast<int>(6 * (i % s.d % 8)));
          // Gradients that are small or 0 in places leave sums that show nothing.
          for (std::size_t i = 0; i < x.dy.size(); ++i)
            if (i % 5 == 0) x.dy[i] *= i % 10 == 0 ? 0 : 1e-9;
          CAPTURE(raised);
          CAPTURE(first);
          check_once(type, s, x);
        }
}
