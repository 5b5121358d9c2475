// SPDX-License-Identifier: Apache-2.0
// The oracle has an oracle of its own: closed forms, and finite differences of its forward loops.
#include <aft/reference/reference.hpp>
#include <doctest/doctest.h>

#include <random>

namespace ref = aft::reference;
using aft::index_t;
using real = long double;

namespace {

constexpr real infinity = std::numeric_limits<real>::infinity();

std::vector<real> normals(index_t count, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<real> x(static_cast<std::size_t>(count));
  for (real& e : x) e = normal(engine);
  return x;
}

template <std::size_t Rank>
aft::tensor_view<const real, Rank> view(const std::vector<real>& x, aft::detail::dims<Rank> extents) {
  return {x.data(), extents};
}

/// Central differences of f over every element of x. Step and bound: cbrt(eps) balances truncation and rounding, both
/// then are of the order eps^(2/3) of the sum that f adds up.
template <class F>
void expect_slope(std::vector<real>& x, const std::vector<real>& gradient, real size, F f) {
  constexpr real step = 4.8e-7L;  // cbrt(2^-63)
  REQUIRE(x.size() == gradient.size());
  real worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const real at = x[i];
    x[i] = at + step;
    const real above = f();
    x[i] = at - step;
    const real below = f();
    x[i] = at;
    worst = std::max(worst, std::abs((above - below) / (2 * step) - gradient[i]));
  }
  CHECK(worst <= 16 * step * step * size);
}

real dot(const std::vector<real>& a, const std::vector<real>& b) {
  real sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

TEST_CASE("reference: equal weights give the mean, whatever their size") {
  const std::vector<real> q(1, 0), v{1, 2, 6}, w{-60, 60, 0}, k{60, -60, 0};
  const aft::dense_bias bias{view<2>(w, {1, 3})};
  const auto r = ref::full<real>(view<2>(q, {1, 1}), view<2>(k, {3, 1}), view<2>(v, {3, 1}), bias);
  CHECK(r.average[0] == doctest::Approx(3.0));
  CHECK(r.y[0] == doctest::Approx(1.5));
  CHECK(static_cast<double>(r.lse[0]) == doctest::Approx(std::log(3.0)));
}

TEST_CASE("reference: the weights are those of two exponentials") {
  const std::vector<real> q(2, 0), v{1, 0}, w{0.5L, 0, -1, 2}, k{0.25L, 1};
  const aft::dense_bias bias{view<2>(w, {2, 2})};
  const auto r =
      ref::full<real>(view<2>(q, {2, 1}), view<2>(k, {2, 1}), view<2>(v, {2, 1}), bias, {.gate_fn = aft::gate::none});
  CHECK(static_cast<double>(r.y[0]) == doctest::Approx(1 / (1 + std::exp(1 - 0.75))));
  CHECK(static_cast<double>(r.y[1]) == doctest::Approx(1 / (1 + std::exp(3 + 0.75))));
}

TEST_CASE("reference: a row that sees no key is 0 with lse -inf, and so are its gradients") {
  const std::vector<real> q{1, 1}, v{3, 4}, k{0, 0}, w{-infinity, -infinity, 0, 0}, dy{1, 1};
  const aft::dense_bias bias{view<2>(w, {2, 2})};
  const auto x = view<2>(q, {2, 1});
  const auto r = ref::full<real>(x, view<2>(k, {2, 1}), view<2>(v, {2, 1}), bias);
  CHECK(r.average[0] == 0);
  CHECK(r.lse[0] == -infinity);
  CHECK(r.average[1] == 3.5L);
  const auto g = ref::full_backward<real>(x, view<2>(k, {2, 1}), view<2>(v, {2, 1}), bias, view<2>(dy, {2, 1}));
  CHECK(g.dq[0] == 0);
  CHECK(g.dw[0] == 0);
  CHECK(g.dw[1] == 0);
  CHECK(g.dv[0] == g.dv[1]);
}

TEST_CASE("reference: no finite double overflows the long double loop") {
  constexpr real most = std::numeric_limits<double>::max();
  const std::vector<real> q(1, 0), v{1, 2}, k{most, -most}, w{-most, most};
  const aft::dense_bias bias{view<2>(w, {1, 2})};
  const auto r = ref::full<real>(view<2>(q, {1, 1}), view<2>(k, {2, 1}), view<2>(v, {2, 1}), bias);
  CHECK(r.average[0] == 1.5L);
}

TEST_CASE("reference: hidden NaN does not reach a row, visible NaN reaches that row only") {
  const real nan = std::numeric_limits<real>::quiet_NaN();
  const std::vector<real> q(3, 0), v{1, nan, 5}, k(3, 0);
  const auto r = ref::simple<real>(view<2>(q, {3, 1}), view<2>(k, {3, 1}), view<2>(v, {3, 1}), {.causal = true});
  CHECK(r.average[0] == 1);
  CHECK(std::isnan(r.average[1]));
  CHECK(std::isnan(r.average[2]));
  const std::vector<real> hide{0, -infinity, 0};
  const auto h = ref::simple<real>(view<2>(q, {3, 1}), view<2>(hide, {3, 1}), view<2>(v, {3, 1}));
  CHECK(h.average[2] == 3);
}

TEST_CASE("reference: local has bias 0 outside its window, or sees nothing there") {
  const std::vector<real> q(3, 0), v{8, 4, 2}, k(3, 0), w{9, std::log(2.0L), 9, 9, std::log(2.0L), 9, 9, 9, 9};
  const aft::dense_bias bias{view<2>(w, {3, 3})};
  const auto x = view<2>(q, {3, 1});
  aft::options opt{.gate_fn = aft::gate::none};
  const auto r = ref::local<real>(x, view<2>(k, {3, 1}), view<2>(v, {3, 1}), bias, aft::window{-1, 1}, opt);
  CHECK(static_cast<double>(r.y[0]) == doctest::Approx((8 + 2 * 4 + 2) / 4.0));
  opt.outside = aft::outside::excluded;
  const auto e = ref::local<real>(x, view<2>(k, {3, 1}), view<2>(v, {3, 1}), bias, aft::window{-1, 1}, opt);
  CHECK(e.y[0] == 4);
  CHECK(e.y[2] == 0);
}

TEST_CASE("reference: conv reads key t + j - left with weight exp(r[j])") {
  const real far = -1000;  // exp(far) vanishes beside 1
  const std::vector<real> q(4, 0), v{1, 2, 4, 8}, k(4, 0);
  aft::options opt{.gate_fn = aft::gate::none, .outside = aft::outside::excluded};
  const auto x = view<2>(q, {4, 1});
  // Two taps: "same" placement has left = 0, so tap 1 reads the next key; causal has left = 1 and tap 0 the previous.
  const std::vector<real> even{far, 0};
  const auto next = ref::conv<real>(x, view<2>(k, {4, 1}), view<2>(v, {4, 1}), view<2>(even, {1, 2}), opt);
  CHECK(next.y == std::vector<real>{2, 4, 8, 8});
  opt.causal = true;
  const auto same = ref::conv<real>(x, view<2>(k, {4, 1}), view<2>(v, {4, 1}), view<2>(even, {1, 2}), opt);
  CHECK(same.y == std::vector<real>{1, 2, 4, 8});
  // On a 2 x 2 grid the filter (1, 3) with its weight on the last tap reads the right neighbour; where there is none
  // the other two taps share the row evenly. No key of another row is reached.
  opt.causal = false;
  const std::vector<real> right{far, far, 0};
  const auto grid = ref::conv<real>(view<4>(q, {1, 2, 2, 1}), view<4>(k, {1, 2, 2, 1}), view<4>(v, {1, 2, 2, 1}),
                                    view<3>(right, {1, 1, 3}), opt);
  CHECK(grid.y == std::vector<real>{2, 1.5L, 8, 6});
}

TEST_CASE("reference: gradients are the slopes of the forward loops") {
  const index_t B = 2, T = 5, d = 4, H = 2, n = 3;
  auto q = normals(B * T * d, 1), k = normals(B * T * H, 2), v = normals(B * T * d, 3), dy = normals(B * T * d, 4);
  auto w = normals(H * T * T, 5), u = normals(H * T * n, 6), f = normals(T * n, 7), r = normals(H * 3, 8);
  const auto seq = [&](const std::vector<real>& x) { return view<3>(x, {B, T, d}); };
  const auto keys = [&] { return view<3>(k, {B, T, H}); };
  real size = 0;
  for (real g : dy) size += 8 * std::abs(g);  // |gate|, |v| and their slopes stay below 8 for these numbers
  for (auto gate : {aft::gate::none, aft::gate::identity, aft::gate::sigmoid, aft::gate::tanh, aft::gate::silu}) {
    for (bool causal : {false, true}) {
      const aft::options opt{.causal = causal, .gate_fn = gate};
      CAPTURE(causal);
      const auto sweep = [&](auto forward, auto backward) {
        const auto g = backward();
        const auto f_ = [&] { return dot(forward().y, dy); };
        expect_slope(q, g.dq, size, f_);
        expect_slope(k, g.dk, size, f_);
        expect_slope(v, g.dv, size, f_);
        if (!g.dw.empty()) expect_slope(w, g.dw, size, f_);
        if (!g.du.empty()) expect_slope(u, g.du, size, f_);
        if (!g.dv_factor.empty()) expect_slope(f, g.dv_factor, size, f_);
        if (!g.dr.empty()) expect_slope(r, g.dr, size, f_);
      };
      const aft::dense_bias dense{view<3>(w, {H, T, T})};
      const aft::factorized_bias factors{view<3>(u, {H, T, n}), view<2>(f, {T, n})};
      const auto win = aft::window::strict(2);
      const auto taps = view<2>(r, {H, 3});
      sweep([&] { return ref::full<real>(seq(q), keys(), seq(v), dense, opt); },
            [&] { return ref::full_backward<real>(seq(q), keys(), seq(v), dense, seq(dy), opt); });
      sweep([&] { return ref::full<real>(seq(q), keys(), seq(v), factors, opt); },
            [&] { return ref::full_backward<real>(seq(q), keys(), seq(v), factors, seq(dy), opt); });
      sweep([&] { return ref::local<real>(seq(q), keys(), seq(v), dense, win, opt); },
            [&] { return ref::local_backward<real>(seq(q), keys(), seq(v), dense, win, seq(dy), opt); });
      sweep([&] { return ref::simple<real>(seq(q), keys(), seq(v), opt); },
            [&] { return ref::simple_backward<real>(seq(q), keys(), seq(v), seq(dy), opt); });
      sweep([&] { return ref::conv<real>(seq(q), keys(), seq(v), taps, opt); },
            [&] { return ref::conv_backward<real>(seq(q), keys(), seq(v), taps, seq(dy), opt); });
    }
  }
}
