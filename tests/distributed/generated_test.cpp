// SPDX-License-Identifier: Apache-2.0
// Biases that functions give: asked with positions of the whole, and the gradient's rows on whoever has the queries.
#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <aft/distributed/in_process.hpp>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "call/cases.hpp"
#include "engines/own_engine.hpp"
#include "split_call.hpp"

using aft::index_t;

namespace {

constexpr index_t T = 30, d = 4, H = 2;
using rows = aft::tensor_view<float, 3>;
using matrices = aft::tensor_view<float, 3>;

struct tensors {
  std::vector<float> q, k, v, y, dy, dq, dk, dv, w, dw;
};

aft::test::setup call_of(bool full, bool causal) {
  return {.call = full ? aft::test::op::full : aft::test::op::local,
          .B = 1,
          .Tq = T,
          .Tk = T,
          .d = d,
          .H = H,
          .win = {4, 3},
          .causal = causal,
          .save = false};
}

tensors random_tensors(const aft::test::setup& s) {
  const aft::test::numbers x = aft::test::random_numbers(s);
  const auto of = [](const std::vector<double>& from) { return std::vector<float>(from.begin(), from.end()); };
  tensors t{of(x.q), of(x.k), of(x.v), {}, of(x.dy), {}, {}, {}, of(x.w), {}};
  t.y.resize(t.q.size());
  t.dq = t.dk = t.dv = t.y;
  t.dw.assign(t.w.size(), NAN);
  return t;
}

/// w(h, t, s) of the tensors by a function, which counts what it is asked, and what beyond the call's
/// window or causal order.
struct asked {
  const std::vector<float>* w;
  aft::window win;
  bool causal;
  std::atomic<int>* strays;
  std::vector<std::atomic<int>>* times;
  void operator()(index_t b, index_t h, index_t t, index_t s0, std::span<float> row) const noexcept {
    const index_t last = s0 + static_cast<index_t>(row.size()) - 1;
    if (b != 0 || h < 0 || h >= H || t < 0 || t >= T || s0 < 0 || last >= T || s0 < t - win.before ||
        last > t + win.after || (causal && last > t)) {
      ++*strays;
      return;
    }
    const auto at = static_cast<std::size_t>((h * T + t) * T + s0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = (*w)[at + i];
      ++(*times)[at + i];
    }
  }
};
struct taken {
  std::vector<float>* dw;
  index_t first, last;
  std::atomic<int>* strays;
  void operator()(index_t part, index_t, index_t h, index_t t, index_t s0, std::span<const float> row) const noexcept {
    // Rows are dealt as the rank counts its own.
    if (t < first || t >= last || part != (h * (last - first) + t - first) % 3) {
      ++*strays;
      return;
    }
    for (std::size_t i = 0; i < row.size(); ++i) (*dw)[static_cast<std::size_t>((h * T + t) * T + s0) + i] = row[i];
  }
};

/// One forward and one backward call over ranks, with a generated bias or with the dense one of the same numbers.
tensors run(tensors x, bool generated, bool full, bool causal, const std::vector<index_t>& cut, int* strays) {
  std::vector<std::atomic<int>> forward(x.w.size()), backward(x.w.size());
  const aft::window win = full ? aft::window{T, T} : aft::window{4, 3};
  const auto group = aft::in_process::group(static_cast<int>(cut.size()));
  std::atomic<int> stray{0};
  std::vector<std::thread> threads;
  index_t first = 0;
  for (std::size_t r = 0; r < cut.size(); first += cut[r++]) {
    threads.emplace_back([&, r, first] {
      const index_t n = cut[r];
      const auto part = [&](std::vector<float>& of) { return rows{of.data() + first * d, {1, n, d}}; };
      const aft::split exec{aft::cpu{.threads = 1}, group[r]};
      const aft::options o{.causal = causal};
      const auto both = [&](const auto& bias, const auto& again, const auto& dbias) {
        if (full) {
          aft::full(exec, part(x.q), part(x.k), part(x.v), bias, part(x.y), o);
          aft::full_backward(exec, part(x.q), part(x.k), part(x.v), again, part(x.dy), part(x.dq), part(x.dk),
                             part(x.dv), dbias, o);
        } else {
          aft::local(exec, part(x.q), part(x.k), part(x.v), bias, win, part(x.y), o);
          aft::local_backward(exec, part(x.q), part(x.k), part(x.v), again, win, part(x.dy), part(x.dq), part(x.dk),
                              part(x.dv), dbias, o);
        }
      };
      const auto matrix = [&](std::vector<float>& of) {
        return matrices{of.data() + first * T, {H, n, T}, {T * T, T, 1}};
      };
      if (generated) {
        both(aft::generated_bias{H, asked{&x.w, win, causal, &stray, &forward}},
             aft::generated_bias{H, asked{&x.w, win, causal, &stray, &backward}},
             aft::generated_bias_gradient{taken{&x.dw, first, first + n, &stray}, 3});
      } else {
        const aft::dense_bias w{matrix(x.w)};
        both(w, w, aft::dense_bias{matrix(x.dw)});
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (std::size_t i = 0; i < x.w.size(); ++i)
    if (forward[i] > 2 || backward[i] > 4) ++stray;
  *strays = stray;
  return x;
}

}  // namespace

TEST_CASE("generated biases give what dense ones of the same numbers give, whatever the cut") {
  for (const bool full : {true, false}) {
    for (const bool causal : {false, true}) {
      for (const std::vector<index_t>& cut : {std::vector<index_t>{30}, {11, 19}, {3, 0, 20, 7}}) {
        CAPTURE(full);
        CAPTURE(causal);
        CAPTURE(cut.size());
        const tensors x = random_tensors(call_of(full, causal));
        int strays = 0, none = 0;
        const tensors made = run(x, true, full, causal, cut, &strays), stored = run(x, false, full, causal, cut, &none);
        CHECK(strays == 0);
        CHECK(made.y == stored.y);
        // Pairs outside the window are nobody's, and inside each has its gradient.
        std::vector<long double> dw(made.dw.begin(), made.dw.end());
        index_t strange = 0;
        for (index_t h = 0; h < H && !full; ++h) {
          for (index_t t = 0; t < T; ++t) {
            for (index_t s = 0; s < T; ++s) {
              const auto at = static_cast<std::size_t>((h * T + t) * T + s);
              if (s >= t - 4 && s <= t + 3) continue;
              if (!std::isnan(made.dw[at]) || stored.dw[at] != 0) ++strange;
              dw[at] = 0;
            }
          }
        }
        CHECK(strange == 0);
        const auto wide = [](const std::vector<float>& from) {
          return std::vector<long double>(from.begin(), from.end());
        };
        const aft::test::setup call = call_of(full, causal);
        aft::test::results got;
        got.dq = wide(made.dq);
        got.dk = wide(made.dk);
        got.dv = wide(made.dv);
        got.dw = dw;
        aft::test::expect_within(aft::dtype::f32, call, got,
                                 aft::test::evaluate_backward(aft::dtype::f32, call, aft::test::random_numbers(call)));
      }
    }
  }
}

TEST_CASE("keys beyond the range of an exponential do not make a call ask more often") {
  for (const bool causal : {false, true}) {
    tensors x = random_tensors(call_of(false, causal));
    for (float& k : x.k) k *= 1e4f;
    int strays = 0;
    run(x, true, false, causal, {11, 19}, &strays);
    CHECK(strays == 0);
  }
}

TEST_CASE("each batch element has its own numbers, also where keys come in blocks of elements") {
  // Two blocks of the dense call; the function's waits for all keys.
  constexpr index_t B = 4, n = 3, channels = 1024, ranks = 2;
  const auto numbers = [](index_t count, int shift) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(static_cast<float>(shift) + 0.7f * static_cast<float>(i));
    return x;
  };
  std::vector<float> w = numbers(B * ranks * n * ranks * n, 7);
  const auto run_all = [&](bool generated) {
    std::vector<std::vector<float>> y(ranks, std::vector<float>(B * n * channels, NAN));
    const auto group = aft::in_process::group(ranks);
    std::vector<std::thread> threads;
    for (index_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        std::vector<float> q = numbers(B * n * channels, static_cast<int>(r) + 1), k = q, v = q;
        const auto part = [&](std::vector<float>& x) { return rows{x.data(), {B, n, channels}}; };
        const aft::split exec{aft::cpu{.threads = 1}, group[static_cast<std::size_t>(r)]};
        rows out = part(y[static_cast<std::size_t>(r)]);
        const auto at = [&](index_t b, index_t t, index_t s) { return (b * ranks * n + t) * ranks * n + s; };
        if (generated) {
          const auto f = [&](index_t b, index_t, index_t t, index_t s0, std::span<float> row) noexcept {
            for (std::size_t i = 0; i < row.size(); ++i) row[i] = w[static_cast<std::size_t>(at(b, t, s0)) + i];
          };
          return aft::full(exec, part(q), part(k), part(v), aft::generated_bias{1, f, aft::per_batch}, out);
        }
        const aft::tensor_view<float, 4> own{
            w.data() + at(0, r * n, 0), {B, 1, n, ranks * n}, {at(1, 0, 0), 0, ranks * n, 1}};
        aft::full(exec, part(q), part(k), part(v), aft::dense_bias{own}, out);
      });
    for (std::thread& t : threads) t.join();
    return y;
  };
  const auto made = run_all(true);
  CHECK(made == run_all(false));
  CHECK(!std::isnan(made[1].back()));
}
