// SPDX-License-Identifier: Apache-2.0
// Biases that a function gives row by row: the bits of a dense bias, and what its calls may be. The harness watches
// those of every call: which pairs, how often, in which order (support/call/watched_rows.hpp).
#include "expect_error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "call/cases.hpp"
#include "engines/engines.hpp"
#include "harness/harness.hpp"
#include "memory.hpp"

#include <aft/reference/reference.hpp>

using namespace aft::test;
using aft::index_t;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr bias_form dense_forms[] = {bias_form::dense_tt, bias_form::dense_htt, bias_form::dense_bhtt,
                                     bias_form::dense_1htt};

/// Calls for every way that weights go through the engine.
std::vector<setup> calls() {
  return {
      {.B = 3, .Tq = 130, .Tk = 70, .d = 40, .H = 2},
      {.B = 2, .Tq = 60, .Tk = 130, .d = 36, .H = 4, .bias = bias_form::dense_bhtt, .causal = true},
      {.B = 2, .Tq = 50, .Tk = 50, .d = 12, .hk = 6, .H = 2, .mask = mask_form::batch_pairs, .lengths = true},
      // Rows that no fast sum is proven for: they are summed by themselves, from log-weights that are still at hand.
      {.B = 2, .Tq = 70, .Tk = 90, .d = 40, .k_scale = 60, .w_scale = 60},
      {.B = 1, .Tq = 70, .Tk = 90, .d = 40, .causal = true, .k_scale = 900, .w_scale = 900, .first_query = 11},
      {.B = 2, .Tq = 70, .Tk = 90, .d = 20, .w_scale = 3000},
      {.B = 2, .Tq = 3, .Tk = 1200, .d = 20},
      {.B = 1, .Tq = 1200, .Tk = 5, .d = 20, .query_lengths = true},
      {.call = op::local, .B = 3, .Tq = 130, .Tk = 130, .d = 20, .H = 2, .win = {5, 5}},
      {.call = op::local, .B = 2, .Tq = 130, .Tk = 110, .d = 20, .win = {9, -2}, .causal = true, .lengths = true},
      {.call = op::local, .B = 2, .Tq = 90, .Tk = 90, .d = 20, .win = {9, 30}, .k_scale = 60, .w_scale = 60},
      {.call = op::local,
       .B = 2,
       .Tq = 60,
       .Tk = 90,
       .d = 8,
       .H = 2,
       .win = {7, 3},
       .mask = mask_form::pairs,
       .outside = aft::outside::excluded,
       .first_query = 20},
  };
}

}  // namespace

TEST_CASE("generated: every form, causal or not, under every kind of mask, against the reference") {
  unsigned seed = 0;
  for (auto call : {op::full, op::local})
    for (auto form : dense_forms)
      for (auto mask : {mask_form::none, mask_form::batch_keys, mask_form::batch_pairs}) {
        ++seed;
        const setup s{.call = call,
                      .B = 2,
                      .Tq = 9,
                      .Tk = 11,
                      .d = 4,
                      .H = 2,
                      .bias = form,
                      .win = {3, 2},
                      .causal = seed % 2 == 0,
                      .mask = mask,
                      .lengths = seed % 3 == 0,
                      .seed = seed,
                      .generated = true};
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, random_numbers(s));
      }
}

TEST_CASE("generated: the bits of a dense bias of the same numbers, in every engine and for any number of threads") {
  for (const setup& dense : calls()) {
    setup s = dense;
    s.generated = true;
    const numbers x = random_numbers(s);
    for (auto type : {aft::dtype::f32, s.B == 2 ? aft::dtype::f64 : aft::dtype::bf16}) {
      CAPTURE(describe(s, type));
      const results forward = run_forward(type, s, x), backward = run_backward(type, s, x);
      CHECK(first_difference(forward, run_forward(type, dense, x)) == "");
      results stored = run_backward(type, dense, x);
      // Where a dense gradient is formed beside the keys' its sums have another order.
      if (s.call == op::local) stored.dw = backward.dw;
      CHECK(first_difference(backward, stored) == "");
      if (type != aft::dtype::f32) continue;
      for (const auto& exec : equivalent_executors()) {
        CHECK(first_difference(forward, run_forward(type, s, x, exec)) == "");
        CHECK(first_difference(backward, run_backward(type, s, x, exec)) == "");
      }
    }
    if (s.Tk < 100 && s.Tq < 100) check_backward(aft::dtype::f32, s, x);
  }
}

TEST_CASE("generated: what it says of hidden pairs is ignored") {
  for (auto call : {op::full, op::local}) {
    setup s{.call = call, .B = 2, .Tq = 40, .Tk = 40, .d = 6, .win = {12, 9}, .lengths = true, .generated = true};
    numbers x = random_numbers(s);
    x.lengths = {29, 13};
    for (double value : {not_a_number, std::numeric_limits<double>::infinity(), 6e4}) {
      for (std::size_t t = 0; t < 40; ++t)
        for (std::size_t i = 29; i < 40; ++i) x.w[t * 40 + i] = value;
      check_both(aft::dtype::f32, s, x);
    }
    s.lengths = false;
    s.mask = mask_form::batch_pairs;
    x = random_numbers(s);
    for (std::size_t i = 0; i < x.w.size(); ++i)
      if (x.mask[i] == 0 && x.mask[i + x.w.size()] == 0) x.w[i] = not_a_number;
    check_both(aft::dtype::f32, s, x);
  }
}

TEST_CASE("generated: 500 places of a routing problem, far from each other, most of them visited") {
  // The bias of ICAM, -alpha log2(n) times a distance, for 20 routes at a time, with distances of a unit square and of
  // one in metres: a weight of its own is 0 in float there, and so is the sum that num is divided by.
  constexpr index_t n = 500, routes = 20, batch = 2;
  for (double side : {1.0, 1000.0}) {
    setup s{.B = batch,
            .Tq = routes,
            .Tk = n,
            .d = 16,
            .bias = bias_form::dense_bhtt,
            .mask = mask_form::batch_pairs,
            .generated = true};
    numbers x = random_numbers(s);
    std::mt19937 engine(7);
    std::uniform_real_distribution<double> coordinate(0, side);
    index_t lost = 0;
    for (index_t b = 0; b < batch; ++b) {
      std::vector<std::array<double, 2>> places(n);
      for (auto& place : places) place = {coordinate(engine), coordinate(engine)};
      for (index_t t = 0; t < routes; ++t) {
        float den = 0;
        for (index_t i = 0; i < n; ++i) {
          const auto at = static_cast<std::size_t>((b * routes + t) * n + i);
          const auto &here = places[static_cast<std::size_t>(t)], &there = places[static_cast<std::size_t>(i)];
          x.w[at] = -std::log2(static_cast<double>(n)) * std::hypot(here[0] - there[0], here[1] - there[1]);
          // A route never returns to a place: nine in ten are behind it, the one that it is at among them.
          x.mask[at] = i != t && (i + t) % 10 == 0;
          if (x.mask[at] != 0)
            den += std::exp(static_cast<float>(x.w[at])) *
                   std::exp(static_cast<float>(x.k[static_cast<std::size_t>((b * n + i) * 16)]));
        }
        if (!(den > 0)) ++lost;
      }
    }
    // Without this the numbers would be harmless, and the test could not fail.
    CHECK((lost > 0) == (side > 1));
    for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
      check_both(type, s, x);
      for (long double y : run_forward(type, s, x).y) CHECK(std::isfinite(y));
    }
  }
}

namespace {

/// ALiBi's slope for one head.
struct alibi {
  template <class C>
  void operator()(index_t, index_t h, index_t t, index_t s0, std::span<C> row) const noexcept {
    const C slope = static_cast<C>(1) / static_cast<C>(index_t{4} << h);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = -slope * static_cast<C>(t > s0 + static_cast<index_t>(i) ? t - s0 - static_cast<index_t>(i)
                                                                        : s0 + static_cast<index_t>(i) - t);
  }
};

void half_of_distance(index_t, index_t, index_t t, index_t s0, std::span<float> row) noexcept {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = 0.5f * static_cast<float>(s0 + static_cast<index_t>(i) - t);
}

template <class T>
std::vector<T> deviates(index_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& each : x) each = static_cast<T>(normal(engine));
  return x;
}

template <class T>
aft::tensor_view<const T, 3> in(const std::vector<T>& x, index_t B, index_t length) {
  return {x.data(), {B, length, static_cast<index_t>(x.size()) / B / length}};
}
template <class T>
aft::tensor_view<T, 3> out(std::vector<T>& x, index_t B, index_t length) {
  return {x.data(), {B, length, static_cast<index_t>(x.size()) / B / length}};
}

/// Buckets of distances: one table a part, added up in the order of parts.
template <class T>
std::vector<T> bucket_gradient(int threads, index_t parts) {
  constexpr index_t B = 2, length = 90, d = 8, H = 2, buckets = 16;
  const auto q = deviates<T>(B * length * d, 1), table = deviates<T>(H * buckets, 2);
  const auto bucket = [](index_t t, index_t s) noexcept {
    const index_t distance = t > s ? t - s : s - t;
    return distance < buckets ? distance : buckets - 1;
  };
  const auto f = [&](index_t, index_t h, index_t t, index_t s0, std::span<T> row) noexcept {
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = table[static_cast<std::size_t>(h * buckets + bucket(t, s0 + static_cast<index_t>(i)))];
  };
  std::vector<T> sums(static_cast<std::size_t>(parts * H * buckets));
  const auto take = [&](index_t part, index_t, index_t h, index_t t, index_t s0, std::span<const T> dw) noexcept {
    for (std::size_t i = 0; i < dw.size(); ++i)
      sums[static_cast<std::size_t>((part * H + h) * buckets + bucket(t, s0 + static_cast<index_t>(i)))] += dw[i];
  };
  std::vector<T> dq(q.size()), dk(q.size()), dv(q.size());
  aft::full_backward(aft::cpu{.threads = threads}, in(q, B, length), in(q, B, length), in(q, B, length),
                     aft::generated_bias{H, f}, in(q, B, length), out(dq, B, length), out(dk, B, length),
                     out(dv, B, length), aft::generated_bias_gradient{take, parts});
  std::vector<T> total(table.size());
  for (index_t part = 0; part < parts; ++part)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += sums[static_cast<std::size_t>(part) * total.size() + i];
  return total;
}

}  // namespace

TEST_CASE_TEMPLATE("generated: tables of the parts add up to the same bits in every run", T, float, double) {
  for (index_t tables : {1, 5, 64}) {
    const auto once = bucket_gradient<T>(1, tables);
    for (int threads : {2, 3, 8}) CHECK(bucket_gradient<T>(threads, tables) == once);
    // Gradients of a softmax cancel in each row, and so in the table of a head.
    T sum = 0, size = 0;
    for (T x : once) sum += x, size += std::abs(x);
    CHECK(size > T(1));
    CHECK(std::abs(sum) <= 90 * 90 * std::numeric_limits<T>::epsilon() * size);
  }
}

TEST_CASE_TEMPLATE("generated: functions and objects of any kind, gradients that are not wanted, maps", T, float,
                   double) {
  constexpr index_t B = 2, length = 33, d = 6, H = 2;
  const auto q = deviates<T>(B * length * d, 3);
  std::vector<T> w(static_cast<std::size_t>(H * length * length));
  for (index_t h = 0; h < H; ++h)
    for (index_t t = 0; t < length; ++t)
      alibi{}(0, h, t, 0, std::span<T>(w).subspan(static_cast<std::size_t>((h * length + t) * length), length));
  const aft::dense_bias dense{aft::tensor_view<const T, 3>{w.data(), {H, length, length}}};
  const aft::generated_bias made{H, alibi{}};
  std::vector<T> y(q.size()), z(q.size());
  const auto x = in(q, B, length);
  for (bool causal : {false, true}) {
    const aft::options opt{.causal = causal};
    aft::full(x, x, x, dense, out(y, B, length), opt);
    aft::full(x, x, x, made, out(z, B, length), opt);
    CHECK(y == z);
    std::vector<T> map(static_cast<std::size_t>(B * length * length * d)), other(map.size());
    aft::attention_map(x, dense, aft::tensor_view<T, 4>{map.data(), {B, length, length, d}}, opt);
    aft::attention_map(x, made, aft::tensor_view<T, 4>{other.data(), {B, length, length, d}}, opt);
    CHECK(map == other);
    const auto win = aft::window::inclusive(3);
    aft::attention_map(x, dense, win, aft::tensor_view<T, 4>{map.data(), {B, length, length, d}}, opt);
    aft::attention_map(x, made, win, aft::tensor_view<T, 4>{other.data(), {B, length, length, d}}, opt);
    CHECK(map == other);
  }
  aft::full_backward(x, x, x, dense, x, aft::no_grad, out(y, B, length), aft::no_grad, aft::no_grad);
  aft::full_backward(x, x, x, made, x, aft::no_grad, out(z, B, length), aft::no_grad, aft::no_grad);
  CHECK(y == z);
  // The reference asks in its own way.
  const auto stored = aft::reference::full_backward<long double>(x, x, x, dense, x);
  const auto asked = aft::reference::full_backward<long double>(x, x, x, made, x);
  CHECK(stored.dk == asked.dk);
  CHECK(stored.dw == asked.dw);
  // The last rows alone, with the positions that they have in the whole.
  constexpr index_t last = 4, first = length - last;
  const auto rows = x.subview({0, first, 0}, {B, last, d});
  std::vector<T> part(static_cast<std::size_t>(B * last * d));
  aft::full(x, x, x, made, out(z, B, length), aft::options{.causal = true});
  aft::full(rows, x, x, made, out(part, B, last), aft::options{.causal = true, .first_query = first});
  for (index_t b = 0; b < B; ++b)
    for (index_t i = 0; i < last * d; ++i)
      CHECK(part[static_cast<std::size_t>(b * last * d + i)] ==
            doctest::Approx(z[static_cast<std::size_t>((b * length + first) * d + i)]).epsilon(1e-5));
  if constexpr (std::is_same_v<T, float>) {
    const aft::tensor_view<const float, 2> flat{q.data(), {length, d}};
    aft::full(flat, flat, flat, aft::generated_bias{1, half_of_distance},
              aft::tensor_view<float, 2>{z.data(), {length, d}});
    aft::full(flat, flat, flat, aft::generated_bias{1, &half_of_distance, aft::per_batch},
              aft::tensor_view<float, 2>{y.data(), {length, d}});
    CHECK(std::equal(y.begin(), y.begin() + length * d, z.begin()));
  }
}

TEST_CASE("generated: nothing of T x T, forward and backward") {
  // As long as the promise speaks of in one direction and short in the other, to be done soon.
#if defined(AFT_TEST_WATCHED)
  constexpr index_t d = 4, T = 8192;  // under sanitizers the whole length takes minutes
#else
  constexpr index_t d = 4, T = 65536;
#endif
  const auto check_memory = [](index_t Tq, index_t Tk, bool local) {
    CAPTURE(Tq);
    CAPTURE(Tk);
    CAPTURE(local);
    const auto q = deviates<float>(Tq * d, 1), k = deviates<float>(Tk * d, 2);
    std::vector<float> y(q.size()), dk(k.size()), dv(k.size());
    const std::size_t array = (std::max)(q.size(), k.size()) * sizeof(float), tiles = std::size_t{64} << 20;
    // Below what a row's sum may hold nothing is fast, in a stored bias as here: slopes that reach it are not for this.
    const auto gentle = [](index_t, index_t, index_t t, index_t s0, std::span<float> row) noexcept {
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = -0.01f * std::abs(static_cast<float>(t - s0) - static_cast<float>(i));
    };
    const aft::generated_bias bias{1, gentle};
    std::vector<float> sums(64 * 16);
    const auto take = [&](index_t part, index_t, index_t, index_t, index_t, std::span<const float> dw) noexcept {
      for (float x : dw) sums[static_cast<std::size_t>(part * 16)] += x;
    };
    const aft::generated_bias_gradient dbias{take, 64};
    const aft::window win = aft::window::strict(32);
    for (int threads : {1, 2}) {
      if (local && threads == 1) continue;
      counting_resource forward, backward;
      const aft::cpu exec{.threads = threads, .memory = &forward}, other{.threads = threads, .memory = &backward};
      if (local) {
        aft::local(exec, in(q, 1, Tq), in(k, 1, Tk), in(k, 1, Tk), bias, win, out(y, 1, Tq));
        aft::local_backward(other, in(q, 1, Tq), in(k, 1, Tk), in(k, 1, Tk), bias, win, in(q, 1, Tq), out(y, 1, Tq),
                            out(dk, 1, Tk), out(dv, 1, Tk), dbias);
      } else {
        aft::full(exec, in(q, 1, Tq), in(k, 1, Tk), in(k, 1, Tk), bias, out(y, 1, Tq));
        aft::full_backward(other, in(q, 1, Tq), in(k, 1, Tk), in(k, 1, Tk), bias, in(q, 1, Tq), out(y, 1, Tq),
                           out(dk, 1, Tk), out(dv, 1, Tk), dbias);
      }
      MESSAGE("scratch ", forward.peak() >> 20, " and ", backward.peak() >> 20, " MiB");
      CHECK(forward.peak() <= 8 * array + tiles);
      CHECK(backward.peak() <= 16 * array + tiles);
      CHECK(forward.in_use() == 0);
      CHECK(backward.in_use() == 0);
    }
  };
  if (!first_run()) return;
  check_memory(300, T, false);
  check_memory(T, 300, false);
  check_memory(T, T, true);
}

TEST_CASE("generated: lengths that are 0") {
  for (auto call : {op::full, op::local})
    for (auto form : {bias_form::dense_htt, bias_form::dense_bhtt}) {
      check({.call = call, .B = 0, .Tq = 5, .Tk = 4, .d = 4, .H = 2, .bias = form, .generated = true});
      check({.call = call, .B = 2, .Tq = 0, .Tk = 4, .d = 4, .H = 2, .bias = form, .generated = true});
      check({.call = call, .B = 2, .Tq = 5, .Tk = 0, .d = 4, .H = 2, .bias = form, .generated = true});
      check({.call = call, .B = 2, .Tq = 5, .Tk = 4, .d = 0, .H = 2, .bias = form, .generated = true});
    }
}

TEST_CASE("generated: heads and parts that cannot be") {
  constexpr index_t length = 5, d = 6;
  const auto q = deviates<float>(length * d, 1);
  canary<float> output(length * d);
  const aft::tensor_view<float, 3> y{output.data(), {1, length, d}};
  const auto x = in(q, 1, length);
  for (index_t H : {0, -1, 4, 12}) {
    const std::string number = "got " + std::to_string(H);
    check_parts(error_of([&] {
                  aft::full(x, x, x, aft::generated_bias{H, alibi{}}, y);
                }),
                {"aft::full", "argument 'H' of bias", "a divisor of d = 6", number.c_str()});
    check_parts(error_of([&] {
                  aft::local(x, x, x, aft::generated_bias{H, alibi{}}, aft::window::strict(2), y);
                }),
                {"aft::local", "argument 'H' of bias", "a divisor of d = 6", number.c_str()});
  }
  const auto take = [](index_t, index_t, index_t, index_t, index_t, std::span<const float>) noexcept {};
  for (index_t dealt : {0, -3, 65}) {
    const std::string number = "got " + std::to_string(dealt);
    check_parts(error_of([&] {
                  aft::full_backward(x, x, x, aft::generated_bias{2, alibi{}}, x, aft::no_grad, y, aft::no_grad,
                                     aft::generated_bias_gradient{take, dealt});
                }),
                {"aft::full_backward", "argument 'dbias.parts'", "1 to 64", number.c_str()});
  }
  CHECK(output.untouched());
}
