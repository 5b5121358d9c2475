// SPDX-License-Identifier: Apache-2.0
// Calls as a user writes them: rank-2 views, the executor left out, biases in float beside 16-bit data, aft::no_grad.
#include <doctest/doctest.h>

#include "engines/engine.hpp"
#include "engines/own_engine.hpp"
#include "harness/harness.hpp"

using namespace aft::test;
using aft::index_t;

namespace {

/// float storage of a call's numbers, for views made by hand.
struct storage {
  std::vector<float> q, k, v, dy, w, u, f, r;
  explicit storage(const numbers& x) {
    const std::pair<std::vector<float>*, const std::vector<double>*> pairs[] = {
        {&q, &x.q}, {&k, &x.k}, {&v, &x.v}, {&dy, &x.dy}, {&w, &x.w}, {&u, &x.u}, {&f, &x.f}, {&r, &x.r}};
    for (auto [to, from] : pairs) to->assign(from->begin(), from->end());
  }
};

std::vector<long double> widen(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

constexpr index_t T = 21, d = 6, H = 3, n = 4;

aft::tensor_view<const float, 2> sequence(const std::vector<float>& x, index_t channels = d) {
  return {x.data(), {T, channels}};
}
aft::tensor_view<float, 2> output(std::vector<float>& x, index_t channels = d) {
  x.assign(static_cast<std::size_t>(T * channels), -1);
  return {x.data(), {T, channels}};
}

/// Runs `backward` with every choice of which of four gradients are wanted; those that are must not depend on the
/// others.
template <class MakeBias, class Backward>
void expect_independent_gradients(index_t channels, MakeBias make_bias, Backward backward) {
  std::vector<float> all[4], got[4];
  backward(output(all[0], channels), output(all[1], channels), output(all[2], channels), make_bias(all[3]));
  const auto to = [&](int i) { return output(got[i], channels); };
  const auto same = [&](auto dq, auto dk, auto dv, auto db, std::initializer_list<int> wanted) {
    backward(dq, dk, dv, db);
    CAPTURE(channels);
    for (int i : wanted) {
      CAPTURE(i);
      CHECK(got[i] == all[i]);
    }
  };
  constexpr auto no = aft::no_grad;
  const auto db = [&] { return make_bias(got[3]); };
  same(no, to(1), to(2), db(), {1, 2, 3});
  same(to(0), no, to(2), db(), {0, 2, 3});
  same(to(0), to(1), no, db(), {0, 1, 3});
  same(to(0), to(1), to(2), no, {0, 1, 2});
  same(to(0), no, no, no, {0});
  same(no, to(1), no, no, {1});
  same(no, no, to(2), no, {2});
  same(no, no, no, db(), {3});
  same(no, no, no, no, {});
}

}  // namespace

TEST_CASE("direct: rank-2 views are a batch of one, and the executor may be left out") {
  for (op call : {op::full, op::local, op::simple, op::conv}) {
    const setup s{.call = call,
                  .B = 1,
                  .Tq = T,
                  .Tk = T,
                  .d = d,
                  .H = H,
                  .win = {3, 2},
                  .grid = {T},
                  .taps = {4},
                  .causal = true,
                  .save = false};
    const numbers x = random_numbers(s);
    const storage m(x);
    const aft::options opt{.causal = true};
    std::vector<float> y, dq, dk, dv, db(std::max(m.w.size(), m.r.size()));
    const auto q = sequence(m.q), k = sequence(m.k), v = sequence(m.v), dy = sequence(m.dy);
    const aft::dense_bias w{aft::tensor_view<const float, 3>{m.w.data(), {H, T, T}}};
    const aft::dense_bias dw{aft::tensor_view<float, 3>{db.data(), {H, T, T}}};
    const aft::tensor_view<const float, 2> r{m.r.data(), {H, 4}};
    const aft::tensor_view<float, 2> dr{db.data(), {H, 4}};
    switch (call) {
      case op::full:
        aft::full(q, k, v, w, output(y), opt);
        aft::full_backward(q, k, v, w, dy, output(dq), output(dk), output(dv), dw, opt);
        break;
      case op::local:
        aft::local(q, k, v, w, aft::window{3, 2}, output(y), opt);
        aft::local_backward(q, k, v, w, aft::window{3, 2}, dy, output(dq), output(dk), output(dv), dw, opt);
        break;
      case op::simple:
        aft::simple(q, k, v, output(y), opt);
        aft::simple_backward(q, k, v, dy, output(dq), output(dk), output(dv), opt);
        break;
      case op::conv:
        aft::conv(q, k, v, r, output(y), opt);
        aft::conv_backward(q, k, v, r, dy, output(dq), output(dk), output(dv), dr, opt);
        break;
    }
    const results forward = run_forward(aft::dtype::f32, s, x);
    const results backward = run_backward(aft::dtype::f32, s, x);
    CHECK(widen(y) == forward.y);
    CHECK(widen(dq) == backward.dq);
    CHECK(widen(dk) == backward.dk);
    CHECK(widen(dv) == backward.dv);
    const std::vector<long double>& bias = call == op::conv ? backward.dr : backward.dw;
    db.resize(bias.size());
    CHECK(widen(db) == bias);
  }
}

TEST_CASE("direct: q, k and v as slices of one packed, channels-first buffer") {
  const setup s{.B = 1, .Tq = T, .Tk = T, .d = d, .H = H, .save = false};
  const numbers x = random_numbers(s);
  const storage m(x);
  std::vector<float> packed(static_cast<std::size_t>(3 * d * T)), y;
  const aft::tensor_view<float, 2> whole = aft::tensor_view<float, 2>{packed.data(), {3 * d, T}}.permute({1, 0});
  for (index_t t = 0; t < T; ++t)
    for (index_t c = 0; c < d; ++c) {
      whole(t, c) = m.q[static_cast<std::size_t>(t * d + c)];
      whole(t, c + d) = m.k[static_cast<std::size_t>(t * d + c)];
      whole(t, c + 2 * d) = m.v[static_cast<std::size_t>(t * d + c)];
    }
  const auto part = [&](index_t i) { return whole.subview({0, i * d}, {T, d}); };
  const aft::dense_bias w{aft::tensor_view<const float, 3>{m.w.data(), {H, T, T}}};
  aft::full(aft::cpu{}, part(0), part(1), part(2), w, output(y));
  CHECK(widen(y) == run_forward(aft::dtype::f32, s, x).y);
}

TEST_CASE("direct: a bias in float beside bfloat16 data is used in full precision") {
  const setup s{.B = 1, .Tq = T, .Tk = T, .d = d, .H = H, .save = false};
  const numbers x = random_numbers(s);
  const storage m(x);
  std::vector<aft::bfloat16> q, k, v, y(m.q.size());
  for (std::size_t i = 0; i < m.q.size(); ++i) {
    q.emplace_back(m.q[i]);
    k.emplace_back(m.k[i]);
    v.emplace_back(m.v[i]);
  }
  const auto view = [](auto& t) { return aft::tensor_view<const aft::bfloat16, 2>{t.data(), {T, d}}; };
  const aft::dense_bias w{aft::tensor_view<const float, 3>{m.w.data(), {H, T, T}}};
  aft::full(aft::cpu{}, view(q), view(k), view(v), w, aft::tensor_view<aft::bfloat16, 2>{y.data(), {T, d}});
  // The same call in float, on the numbers that bfloat16 holds.
  numbers rounded = x;
  for (std::size_t i = 0; i < q.size(); ++i) {
    rounded.q[i] = static_cast<float>(q[i]);
    rounded.k[i] = static_cast<float>(k[i]);
    rounded.v[i] = static_cast<float>(v[i]);
  }
  const auto exact = run_forward(aft::dtype::f32, s, rounded).y;
  for (std::size_t i = 0; i < y.size(); ++i) {
    CHECK(static_cast<float>(y[i]) == static_cast<float>(aft::bfloat16(static_cast<float>(exact[i]))));
  }
}

TEST_CASE("direct: each gradient that is wanted is the same whichever others are") {
  for (index_t channels : {d, 32 * H}) {  // parts of vectors, and whole ones
    const setup s{.B = 1,
                  .Tq = T,
                  .Tk = T,
                  .d = channels,
                  .H = H,
                  .bias = bias_form::dense_htt,
                  .win = {3, 2},
                  .grid = {T},
                  .taps = {4}};
    setup factors = s;
    factors.bias = bias_form::factorized_htn;
    factors.n = n;
    setup filter = s;
    filter.call = op::conv;
    const storage dense(random_numbers(s)), factorized(random_numbers(factors)), conv(random_numbers(filter));
    const auto make_dense = [](std::vector<float>& g) {
      g.assign(static_cast<std::size_t>(H * T * T), -1);
      return aft::dense_bias{aft::tensor_view<float, 3>{g.data(), {H, T, T}}};
    };
    const auto make_factors = [](std::vector<float>& g) {
      g.assign(static_cast<std::size_t>(2 * H * T * n), -1);
      return aft::factorized_bias{aft::tensor_view<float, 3>{g.data(), {H, T, n}},
                                  aft::tensor_view<float, 3>{g.data() + H * T * n, {H, T, n}}};
    };
    const auto make_filter = [](std::vector<float>& g) {
      g.assign(static_cast<std::size_t>(H * 4), -1);
      return aft::tensor_view<float, 2>{g.data(), {H, 4}};
    };
    const aft::dense_bias w{aft::tensor_view<const float, 3>{dense.w.data(), {H, T, T}}};
    const aft::factorized_bias uf{aft::tensor_view<const float, 3>{factorized.u.data(), {H, T, n}},
                                  aft::tensor_view<const float, 3>{factorized.f.data(), {H, T, n}}};
    const aft::tensor_view<const float, 2> r{conv.r.data(), {H, 4}};
    for (bool causal : {false, true}) {
      const aft::cpu exec{.threads = 2};
      const aft::window win{3, 2};
      // With lse and average computed again, and with those of the forward call given.
      CAPTURE(causal);
      const auto run = [&](const storage& m, auto make_bias, auto forward, auto backward) {
        const auto q = sequence(m.q, channels), k = sequence(m.k, channels), v = sequence(m.v, channels);
        const auto dy = sequence(m.dy, channels);
        std::vector<float> y, lse, average;
        const aft::options again{.causal = causal};
        const aft::options given{.causal = causal, .lse = output(lse, channels), .average = output(average, channels)};
        forward(q, k, v, output(y, channels), given);
        for (const aft::options& opt : {again, given}) {
          CAPTURE(opt.lse.empty());
          expect_independent_gradients(channels, make_bias, [&](auto dq, auto dk, auto dv, auto db) {
            backward(q, k, v, dy, dq, dk, dv, db, opt);
          });
        }
      };
      run(
          dense, make_dense, [&](auto q, auto k, auto v, auto y, auto opt) { aft::full(exec, q, k, v, w, y, opt); },
          [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, auto db, auto opt) {
            aft::full_backward(exec, q, k, v, w, dy, dq, dk, dv, db, opt);
          });
      run(
          factorized, make_factors,
          [&](auto q, auto k, auto v, auto y, auto opt) { aft::full(exec, q, k, v, uf, y, opt); },
          [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, auto db, auto opt) {
            aft::full_backward(exec, q, k, v, uf, dy, dq, dk, dv, db, opt);
          });
      run(
          dense, make_dense,
          [&](auto q, auto k, auto v, auto y, auto opt) { aft::local(exec, q, k, v, w, win, y, opt); },
          [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, auto db, auto opt) {
            aft::local_backward(exec, q, k, v, w, win, dy, dq, dk, dv, db, opt);
          });
      run(
          conv, make_filter, [&](auto q, auto k, auto v, auto y, auto opt) { aft::conv(exec, q, k, v, r, y, opt); },
          [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, auto db, auto opt) {
            aft::conv_backward(exec, q, k, v, r, dy, dq, dk, dv, db, opt);
          });
      // AFT-simple has no bias; its gradient is then nothing that could change.
      run(
          dense, make_filter, [&](auto q, auto k, auto v, auto y, auto opt) { aft::simple(exec, q, k, v, y, opt); },
          [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, auto, auto opt) {
            aft::simple_backward(exec, q, k, v, dy, dq, dk, dv, opt);
          });
    }
  }
}
