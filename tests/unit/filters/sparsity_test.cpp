// SPDX-License-Identifier: Apache-2.0
// filter_entropy, gumbel_filter and their gradients against the formulas in long double, and the form of inference.
#include "expect_error.hpp"
#include "harness/tolerance.hpp"

#include <cmath>
#include <limits>
#include <random>

namespace {

using aft::index_t;
using aft::tensor_view;
using aft::test::check_parts;
using aft::test::error_of;
using real = long double;
using row = std::vector<real>;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Distances from the largest logit, (r + noise) / tau, and their softmax.
struct softmax {
  row x, p;

  softmax(const row& r, const row& noise, real tau) {
    real most = -std::numeric_limits<real>::infinity(), sum = 0;
    for (std::size_t i = 0; i < r.size(); ++i) most = std::max(most, r[i] + noise[i]);
    for (std::size_t i = 0; i < r.size(); ++i) x.push_back((r[i] + noise[i] - most) / tau);
    for (real d : x) sum += std::exp(d);
    for (real d : x) p.push_back(std::exp(d) / sum);
  }
};

real entropy(const row& r) {
  const softmax s(r, row(r.size()), 1);
  real sum = 0;
  for (real p : s.p) sum -= p > 0 ? p * std::log(p) : 0;
  return sum;
}

row gumbel(const row& r, const row& noise, real tau) {
  row out = softmax(r, noise, tau).p;
  for (std::size_t i = 0; i < r.size(); ++i) out[i] *= r[i];
  return out;
}

/// d f(r) / d r[j] by central differences.
template <class F>
real slope(row r, std::size_t j, const F& f) {
  const real at = r[j], h = aft::test::difference_step;
  r[j] = at + h;
  const real above = f(r);
  r[j] = at - h;
  return (above - f(r)) / (2 * h);
}

/// A result in double may be off by `roundings` of the size of what was added up; storing rounds once more.
template <class T>
void expect_close(const T& got, real want, real size, double roundings) {
  const auto g = static_cast<real>(got);
  const real stored = std::is_same_v<T, double> ? 0 : aft::test::ulp(aft::dtype_of<T>, want);
  CAPTURE(static_cast<double>(g));
  CAPTURE(static_cast<double>(want));
  CHECK(std::abs(g - want) <= roundings * 0x1p-53L * size + stored);
}

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed, double scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> values;
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, double>) {
      values.push_back(normal(rng));
    } else {
      values.push_back(T(static_cast<float>(normal(rng))));
    }
  }
  return values;
}

template <class T, std::size_t Rank>
row taps_of(const tensor_view<const T, Rank>& f, index_t h) {
  row taps;
  std::array<index_t, 4> n{1, 1, 1, 1}, s{};
  for (std::size_t a = 1; a < Rank; ++a) {
    n[a] = f.extent(a);
    s[a] = f.stride(a);
  }
  for (index_t i = 0; i < n[1]; ++i)
    for (index_t j = 0; j < n[2]; ++j)
      for (index_t l = 0; l < n[3]; ++l)
        taps.push_back(static_cast<real>(f.data()[h * f.stride(0) + i * s[1] + j * s[2] + l * s[3]]));
  return taps;
}

/// All five calls on one filter, seen through any strides.
template <class T, std::size_t Rank>
void check_against_formulas(const tensor_view<const T, Rank>& r, double scale) {
  const index_t H = r.extent(0);
  const auto heads = static_cast<std::size_t>(H);
  const auto n = static_cast<std::size_t>(r.size());
  const std::size_t taps = n / heads;
  const auto noise = random_values<T>(n, 5), up = random_values<T>(n, 6), spread = random_values<T>(heads, 7);
  const auto tau = 0.5;
  std::vector<T> entropies(heads), slopes(n), out(n), dr(n), hard(n);
  const auto to = [&](std::vector<T>& x) { return tensor_view<T, Rank>{x.data(), r.extents()}; };
  const tensor_view<const T, Rank> noise_view{noise.data(), r.extents()}, up_view{up.data(), r.extents()};
  aft::filter_entropy(r, tensor_view<T, 1>{entropies.data(), {H}});
  aft::filter_entropy_backward(aft::cpu{}, r, tensor_view<const T, 1>{spread.data(), {H}}, to(slopes));
  aft::gumbel_filter(aft::cpu{}, r, noise_view, tau, to(out));
  aft::gumbel_filter_backward(r, noise_view, tau, up_view, to(dr));
  aft::gumbel_filter_hard(r, to(hard));
  for (std::size_t h = 0; h < heads; ++h) {
    const row x = taps_of(r, static_cast<index_t>(h)), g = taps_of(noise_view, static_cast<index_t>(h)),
              dout = taps_of(up_view, static_cast<index_t>(h));
    // exp(x) has |x| roundings of its argument and one of its own; a sum has one for each term.
    const double rounds = 8 * scale / tau + 4 * static_cast<double>(taps) + 16;
    expect_close(entropies[h], entropy(x), 1 + entropy(x), rounds);
    const row want = gumbel(x, g, tau);
    real largest = 0, top = x[0];
    for (std::size_t i = 0; i < taps; ++i) {
      largest = std::max(largest, std::abs(x[i] * dout[i]));
      top = std::max(top, x[i]);
    }
    for (std::size_t i = 0; i < taps; ++i) {
      const std::size_t at = h * taps + i;
      const real d = static_cast<real>(spread[h]) * slope(x, i, entropy);
      const real size = 1 + std::log(static_cast<real>(taps)) + static_cast<real>(8 * scale);
      CHECK(std::abs(static_cast<real>(slopes[at]) - d) <=
            aft::test::difference_bound(size * (1 + std::abs(static_cast<real>(spread[h])))) +
                aft::test::ulp(aft::dtype_of<T>, d));
      expect_close(out[at], want[i], 1 + std::abs(want[i]), rounds * (1 + scale));
      const real e = slope(x, i, [&](const row& y) {
        const row z = gumbel(y, g, tau);
        real sum = 0;
        for (std::size_t k = 0; k < taps; ++k) sum += z[k] * dout[k];
        return sum;
      });
      // The third derivative that the differences leave out has a factor 1/tau^3.
      CHECK(std::abs(static_cast<real>(dr[at]) - e) <=
            aft::test::difference_bound((1 + largest) * 8 / (tau * tau * tau)) + aft::test::ulp(aft::dtype_of<T>, e));
      bool first = x[i] == top;
      for (std::size_t k = 0; k < i; ++k) first = first && x[k] != top;
      CHECK(static_cast<real>(hard[at]) == (first ? x[i] : 0));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("the formulas, for filters of every rank", T, float, double, aft::half, aft::bfloat16) {
  for (double scale : {0.1, 1.0, 6.0}) {
    const auto memory = random_values<T>(400, 1, scale);
    check_against_formulas(tensor_view<const T, 2>{memory.data(), {3, 7}}, scale);
    check_against_formulas(tensor_view<const T, 2>{memory.data() + 200, {3, 7}, {-31, 4}}, scale);
    check_against_formulas(tensor_view<const T, 2>{memory.data(), {4, 1}}, scale);
    check_against_formulas(tensor_view<const T, 3>{memory.data(), {2, 3, 4}, {12, 1, 3}}, scale);
    check_against_formulas(tensor_view<const T, 3>{memory.data(), {1, 11, 11}}, scale);
    check_against_formulas(tensor_view<const T, 4>{memory.data(), {2, 2, 3, 2}}, scale);
  }
}

namespace {

double entropy_of(const std::vector<double>& r) {
  double out = 7;
  aft::filter_entropy(tensor_view<const double, 2>{r.data(), {1, static_cast<index_t>(r.size())}},
                      tensor_view<double, 1>{&out, {1}});
  return out;
}
std::vector<double> entropy_slopes(const std::vector<double>& r) {
  std::vector<double> dr(r.size());
  const double one = 1;
  const auto n = static_cast<index_t>(r.size());
  aft::filter_entropy_backward(tensor_view<const double, 2>{r.data(), {1, n}}, tensor_view<const double, 1>{&one, {1}},
                               tensor_view<double, 2>{dr.data(), {1, n}});
  return dr;
}
std::vector<double> gumbel_of(const std::vector<double>& r, const std::vector<double>& noise, double tau = 0.5) {
  std::vector<double> out(r.size());
  const auto n = static_cast<index_t>(r.size());
  aft::gumbel_filter(tensor_view<const double, 2>{r.data(), {1, n}}, tensor_view<const double, 2>{noise.data(), {1, n}},
                     tau, tensor_view<double, 2>{out.data(), {1, n}});
  return out;
}
std::vector<double> gumbel_slopes(const std::vector<double>& r, const std::vector<double>& noise,
                                  const std::vector<double>& dout, double tau = 0.5) {
  std::vector<double> dr(r.size());
  const auto n = static_cast<index_t>(r.size());
  const auto view = [&](const std::vector<double>& x) { return tensor_view<const double, 2>{x.data(), {1, n}}; };
  aft::gumbel_filter_backward(view(r), view(noise), tau, view(dout), tensor_view<double, 2>{dr.data(), {1, n}});
  return dr;
}
std::vector<double> hard_of(const std::vector<double>& r) {
  std::vector<double> out(r.size());
  const auto n = static_cast<index_t>(r.size());
  aft::gumbel_filter_hard(tensor_view<const double, 2>{r.data(), {1, n}}, tensor_view<double, 2>{out.data(), {1, n}});
  return out;
}
/// Equal but for 16 roundings.
void check_near(double got, real want) {
  CAPTURE(got);
  CAPTURE(static_cast<double>(want));
  CHECK(std::abs(static_cast<real>(got) - want) <= 16 * 0x1p-53L * std::abs(want));
}

}  // namespace

TEST_CASE("entropies from 0 to log(taps), small ones with all their digits") {
  CHECK(entropy_of({}) == 0);
  CHECK(entropy_of({3.5}) == 0);
  check_near(entropy_of({2, 2, 2, 2, 2}), std::log(real(5)));
  // e^-x (1 + x) but for squares of e^-x, which is what 1 - (1 - e^-x) would lose.
  for (double x : {40.0, 100.0, 700.0}) {
    const real p = std::exp(-static_cast<real>(x));
    check_near(entropy_of({0, -x}), p * (1 + static_cast<real>(x)));
    const auto dr = entropy_slopes({0, -x});
    check_near(dr[0], -p * static_cast<real>(x));
    check_near(dr[1], p * static_cast<real>(x));
  }
  CHECK(entropy_of({1000, 0, -1000}) == 0);
  CHECK(entropy_slopes({1000, 0, -1000}) == std::vector<double>(3));
  CHECK(entropy_slopes({5, 5, 5}) == std::vector<double>(3));
}

TEST_CASE("logits of any finite size") {
  constexpr double most = std::numeric_limits<double>::max();
  CHECK(entropy_of({most, -most, 0}) == 0);
  check_near(entropy_of({most, most, -most}), std::log(real(2)));
  check_near(entropy_of({-most, -most}), std::log(real(2)));
  // An offset that all taps share is no part of the softmax, and takes none of its digits.
  check_near(entropy_of({0x1p50, 0x1p50 - 1, 0x1p50 - 3}), entropy({0, -1, -3}));
  CHECK(gumbel_of({most, 0}, {most, 0}) == std::vector<double>{most, 0});
  CHECK(gumbel_of({most, -1}, {-most, -1}, 1)[0] == doctest::Approx(most / (1 + std::exp(-2.0))));
  // The sum 2^60 + noise has no room for the noise, but its rounding error does.
  const auto out = gumbel_of({0x1p60, 0x1p60}, {0.25, 0}, 1);
  check_near(out[0], 0x1p60L / (1 + std::exp(-0.25L)));
  check_near(out[1], 0x1p60L / (1 + std::exp(0.25L)));
  const auto steep = gumbel_of({1, 1 - 0x1p-30}, {0, 0}, 0x1p-30);
  check_near(steep[0], 1 / (1 + std::exp(-1.0L)));
}

TEST_CASE("the gradient of a peaked sample keeps the digits of what is small") {
  // p[1] = e^-x: dr[0] = dout[0] (1 - p) + p (a[0] - a[1]) / tau, dr[1] = p (dout[1] + (a[1] - a[0]) / tau).
  const std::vector<double> r{1e10, 1e10 - 20}, dout{1, 3};
  const real p = 1 / (1 + std::exp(40.0L)), a = real(1e10), b = 3 * (real(1e10) - 20);
  const auto dr = gumbel_slopes(r, {0, 0}, dout);
  check_near(dr[0], (1 - p) + p * (1 - p) * (a - b) * 2);
  check_near(dr[1], p * (3 + (1 - p) * (b - a) * 2));
}

TEST_CASE("infinities and NaN stay in their head") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {nan, infinity}) {
    const std::vector<double> r{1, bad, 2, 1, 2, 4};
    double out[2];
    aft::filter_entropy(tensor_view<const double, 2>{r.data(), {2, 3}}, tensor_view<double, 1>{out, {2}});
    CHECK(std::isnan(out[0]));
    CHECK(out[1] == entropy_of({1, 2, 4}));
    const std::vector<double> zeros(6);
    std::vector<double> sample(6);
    aft::gumbel_filter(tensor_view<const double, 2>{r.data(), {2, 3}},
                       tensor_view<const double, 2>{zeros.data(), {2, 3}}, 1,
                       tensor_view<double, 2>{sample.data(), {2, 3}});
    CHECK(std::isnan(sample[1]));
    CHECK(std::vector<double>(sample.begin() + 3, sample.end()) == gumbel_of({1, 2, 4}, {0, 0, 0}, 1));
  }
  CHECK(entropy_of({-infinity, 1, 2}) == entropy_of({1, 2}));
  CHECK(entropy_slopes({-infinity, 1, 2})[0] == 0);
  CHECK(std::isnan(entropy_of({-infinity, -infinity})));
  CHECK(std::isnan(hard_of({1, nan, 5})[1]));
  CHECK(hard_of({1, nan, 5})[2] == 0);
}

TEST_CASE("the form of inference: one tap a head, of equal ones the first") {
  CHECK(hard_of({1, 3, 3, -2}) == std::vector<double>{0, 3, 0, 0});
  CHECK(hard_of({-3, -1, -2}) == std::vector<double>{0, -1, 0});
  CHECK(hard_of({}).empty());
  // What the sample comes to without noise as tau falls.
  CHECK(gumbel_of({1, 3, 2, -2}, {0, 0, 0, 0}, 1e-3) == hard_of({1, 3, 2, -2}));
}

TEST_CASE("errors of the sparsity calls name the argument and write nothing") {
  std::vector<float> memory(200, 0.5f), written(200, 42.0f);
  const tensor_view<const float, 2> r{memory.data(), {2, 5}}, other{memory.data(), {2, 4}};
  const tensor_view<float, 2> out{written.data(), {2, 5}};
  const tensor_view<float, 1> two{written.data() + 100, {2}}, three{written.data() + 100, {3}};
  const tensor_view<const float, 1> up{memory.data(), {2}}, long_up{memory.data(), {3}};
  check_parts(error_of([&] { aft::filter_entropy(r, three); }),
              {"aft::filter_entropy", "'out'", "extent 0 (H) to be 2", "got 3"});
  check_parts(error_of([&] {
                aft::filter_entropy(tensor_view<const float, 2>{nullptr, {2, 5}}, two);
              }),
              {"'r'", "null pointer"});
  check_parts(error_of([&] {
                aft::filter_entropy(r, tensor_view<float, 1>{memory.data(), {2}});
              }),
              {"'out'", "'r'", "overlap"});
  check_parts(error_of([&] { aft::filter_entropy(aft::cpu{.threads = -1}, r, two); }), {"'exec'", "got -1"});
  check_parts(error_of([&] { aft::filter_entropy_backward(r, long_up, out); }),
              {"aft::filter_entropy_backward", "'dout'", "got 3"});
  check_parts(error_of([&] {
                aft::filter_entropy_backward(r, up, tensor_view<float, 2>{written.data(), {2, 4}});
              }),
              {"'dr'", "extent 1 (taps) to be 5", "got 4"});
  for (double tau : {0.0, -1.0, infinity, std::numeric_limits<double>::quiet_NaN()}) {
    check_parts(error_of([&] { aft::gumbel_filter(r, r, tau, out); }),
                {"aft::gumbel_filter", "'tau'", "a finite number above 0"});
    check_parts(error_of([&] { aft::gumbel_filter_backward(r, r, tau, r, out); }), {"'tau'"});
  }
  check_parts(error_of([&] { aft::gumbel_filter(r, r, -1.5, out); }), {"got -1.5"});
  check_parts(error_of([&] { aft::gumbel_filter(r, other, 1, out); }), {"'noise'", "(taps) to be 5", "got 4"});
  check_parts(error_of([&] { aft::gumbel_filter_backward(r, r, 1, other, out); }), {"'dout'", "got 4"});
  check_parts(error_of([&] {
                aft::gumbel_filter_hard(r, tensor_view<float, 2>{written.data(), {2, 5}, {0, 1}});
              }),
              {"aft::gumbel_filter_hard", "'out'", "axis 0", "got 0"});
  for (float x : written) CHECK(x == 42.0f);
  // A gradient that is not wanted is checked like the others, and costs nothing.
  aft::filter_entropy_backward(aft::cpu{}, r, up, aft::no_grad);
  aft::gumbel_filter_backward(aft::cpu{}, r, r, 1, r, aft::no_grad);
}
