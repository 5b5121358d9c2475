// SPDX-License-Identifier: Apache-2.0
// Arrays that no cache holds go other ways than small ones: other panels, stores around the caches, other shares of the
// threads. A batch element has the same bits there as alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <aft/aft.hpp>

namespace {

using aft::index_t;

constexpr index_t T = 1024, d = 512, one = T * d;

/// A batch of sequences and what calls make of it.
struct batch {
  index_t B;
  std::vector<float> q, k, v, dy, y, dq, dk, dv;

  explicit batch(index_t elements) : B(elements) {
    for (auto* x : {&q, &k, &v, &dy, &y, &dq, &dk, &dv}) x->resize(static_cast<std::size_t>(B * one));
  }
  static aft::tensor_view<const float, 3> in(const std::vector<float>& x) {
    return {x.data(), {static_cast<index_t>(x.size()) / one, T, d}};
  }
  static aft::tensor_view<float, 3> out(std::vector<float>& x) {
    return {x.data(), {static_cast<index_t>(x.size()) / one, T, d}};
  }
};

/// More than scan_tuning::around and tuning::arrays_around; some channels leave the usual loops.
batch large() {
  batch x(9);
  std::mt19937 random(20);
  std::normal_distribution<float> normal;
  for (auto* own : {&x.q, &x.k, &x.v, &x.dy})
    for (float& value : *own) value = normal(random);
  for (std::size_t i = 0; i < x.k.size(); i += 509) x.k[i] *= 40;
  for (std::size_t i = 0; i < x.q.size(); i += 1021) x.q[i] *= 60;
  for (std::size_t i = 5; i < x.v.size(); i += static_cast<std::size_t>(d)) x.v[i] *= 1e15F;
  for (std::size_t i = 37; i < x.dy.size(); i += static_cast<std::size_t>(d)) x.dy[i] *= 1e-15F;
  return x;
}

batch element(const batch& x, index_t b) {
  batch alone(1);
  const auto copy = [b](const std::vector<float>& from, std::vector<float>& to) {
    std::copy_n(from.begin() + b * one, one, to.begin());
  };
  copy(x.q, alone.q);
  copy(x.k, alone.k);
  copy(x.v, alone.v);
  copy(x.dy, alone.dy);
  return alone;
}

template <class Call>
void check(const Call& call, std::initializer_list<std::vector<float> batch::*> results) {
  batch x = large();
  call(x, 2);
  for (const index_t b : {index_t{0}, x.B - 1})
    for (const int threads : {1, 2}) {
      batch alone = element(x, b);
      call(alone, threads);
      for (const auto result : results)
        CHECK(std::equal((alone.*result).begin(), (alone.*result).end(), (x.*result).begin() + b * one));
    }
}

}  // namespace

TEST_CASE("large: simple") {
  for (const bool causal : {false, true}) {
    const aft::options options{.causal = causal};
    check(
        [&](batch& x, int threads) {
          aft::simple(aft::cpu{.threads = threads}, batch::in(x.q), batch::in(x.k), batch::in(x.v), batch::out(x.y),
                      options);
        },
        {&batch::y});
    check(
        [&](batch& x, int threads) {
          aft::simple_backward(aft::cpu{.threads = threads}, batch::in(x.q), batch::in(x.k), batch::in(x.v),
                               batch::in(x.dy), batch::out(x.dq), batch::out(x.dk), batch::out(x.dv), options);
        },
        {&batch::dq, &batch::dk, &batch::dv});
  }
}

TEST_CASE("large: local") {
  std::vector<float> w(static_cast<std::size_t>(T * T));
  std::mt19937 random(21);
  std::normal_distribution<float> normal;
  for (float& value : w) value = normal(random);
  const aft::tensor_view<const float, 2> view{w.data(), {T, T}};
  const aft::dense_bias bias{view};
  const aft::window window = aft::window::strict(32);
  check(
      [&](batch& x, int threads) {
        aft::local(aft::cpu{.threads = threads}, batch::in(x.q), batch::in(x.k), batch::in(x.v), bias, window,
                   batch::out(x.y));
      },
      {&batch::y});
  check(
      [&](batch& x, int threads) {
        aft::local_backward(aft::cpu{.threads = threads}, batch::in(x.q), batch::in(x.k), batch::in(x.v), bias, window,
                            batch::in(x.dy), batch::out(x.dq), batch::out(x.dk), batch::out(x.dv), aft::no_grad);
      },
      {&batch::dq, &batch::dk, &batch::dv});
}
