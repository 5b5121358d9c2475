// SPDX-License-Identifier: Apache-2.0
// reparameterize and its gradients against the formula in long double.
#include "expect_error.hpp"

#include <cmath>
#include <limits>
#include <random>

namespace {

using aft::index_t;
using aft::tensor_view;
using aft::test::check_parts;
using aft::test::error_of;
using real = long double;

std::vector<real> formula(const std::vector<real>& r, real gain, real shift) {
  const auto n = static_cast<real>(r.size());
  real mean = 0, squares = 0;
  for (real x : r) mean += x / n;
  for (real x : r) squares += (x - mean) * (x - mean);
  const real deviation = std::sqrt(squares / (n - 1));
  std::vector<real> out;
  out.reserve(r.size());
  for (real x : r) out.push_back(gain * (x - mean) / deviation + shift);
  return out;
}

// d(sum of out * weights) / d r[j], by central differences.
real slope(std::vector<real> r, real gain, const std::vector<real>& weights, std::size_t j) {
  const real at = r[j], h = 1e-6L;
  const auto value = [&](real x) {
    r[j] = x;
    const auto out = formula(r, gain, 0);
    real sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
    return sum;
  };
  return (value(at + h) - value(at - h)) / (2 * h);
}

template <class T>
constexpr double epsilon() {
  if constexpr (std::is_same_v<T, double>) return 1e-15;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  return std::is_same_v<T, aft::half> ? 0x1p-11 : 0x1p-8;
}

template <class T>
T from(double x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return T(static_cast<float>(x));
}

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed, double offset = 0) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(from<T>(offset + normal(rng)));
  return values;
}

// Forward and backward for one filter of H heads with `taps` taps each, seen through a view of any rank and strides.
template <class T, std::size_t Rank>
void check_against_formula(const tensor_view<const T, Rank>& r, const std::vector<std::array<index_t, Rank>>& places) {
  const index_t H = r.extent(0);
  const std::size_t taps = places.size() / static_cast<std::size_t>(H);
  const auto gain = random_values<T>(static_cast<std::size_t>(H), 2),
             shift = random_values<T>(static_cast<std::size_t>(H), 3);
  const auto weights = random_values<T>(places.size(), 4);
  std::vector<T> out(places.size()), dr(places.size()), dgain(gain.size()), dshift(gain.size());
  std::array<index_t, Rank> extents = r.extents();
  const tensor_view<const T, 1> gain_view{gain.data(), {H}}, shift_view{shift.data(), {H}};
  const tensor_view<const T, Rank> dout{weights.data(), extents};
  aft::reparameterize(aft::cpu{}, r, gain_view, shift_view, tensor_view<T, Rank>{out.data(), extents});
  aft::reparameterize_backward(aft::cpu{}, r, gain_view, shift_view, dout, tensor_view<T, Rank>{dr.data(), extents},
                               tensor_view<T, 1>{dgain.data(), {H}}, tensor_view<T, 1>{dshift.data(), {H}});
  for (std::size_t h = 0; h < static_cast<std::size_t>(H); ++h) {
    std::vector<real> row, w;
    for (std::size_t i = 0; i < taps; ++i) {
      index_t offset = 0;
      for (std::size_t a = 0; a < Rank; ++a) offset += places[h * taps + i][a] * r.stride(a);
      row.push_back(static_cast<real>(r.data()[offset]));
      w.push_back(static_cast<real>(weights[h * taps + i]));
    }
    const auto g = static_cast<real>(gain[h]);
    const auto expected = formula(row, g, static_cast<real>(shift[h]));
    const auto unit = formula(row, 1, 0);
    real sum = 0, product = 0;
    for (std::size_t i = 0; i < taps; ++i) {
      const double tolerance = 4 * epsilon<T>() * (4 + std::fabs(static_cast<double>(expected[i])));
      CHECK(std::fabs(static_cast<double>(static_cast<real>(out[h * taps + i]) - expected[i])) <= tolerance);
      const real d = slope(row, g, w, i);
      CHECK(std::fabs(static_cast<double>(static_cast<real>(dr[h * taps + i]) - d)) <=
            1e-8 + 4 * epsilon<T>() * (1 + std::fabs(static_cast<double>(d))));
      sum += w[i];
      product += w[i] * unit[i];
    }
    CHECK(std::fabs(static_cast<double>(static_cast<real>(dshift[h]) - sum)) <=
          8 * epsilon<T>() * (2 + static_cast<double>(taps)));
    CHECK(std::fabs(static_cast<double>(static_cast<real>(dgain[h]) - product)) <=
          8 * epsilon<T>() * (2 + static_cast<double>(taps)));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("the formula, for filters of every rank", T, float, double, aft::half, aft::bfloat16) {
  const auto memory = random_values<T>(400, 1);
  SUBCASE("rank 2") {
    std::vector<std::array<index_t, 2>> places;
    for (index_t h = 0; h < 3; ++h) {
      for (index_t i = 0; i < 7; ++i) places.push_back({h, i});
    }
    check_against_formula(tensor_view<const T, 2>{memory.data(), {3, 7}}, places);
    check_against_formula(tensor_view<const T, 2>{memory.data() + 200, {3, 7}, {-31, 4}}, places);
  }
  SUBCASE("rank 3, transposed taps") {
    std::vector<std::array<index_t, 3>> places;
    for (index_t h = 0; h < 2; ++h) {
      for (index_t i = 0; i < 3; ++i) {
        for (index_t j = 0; j < 4; ++j) places.push_back({h, i, j});
      }
    }
    check_against_formula(tensor_view<const T, 3>{memory.data(), {2, 3, 4}, {12, 1, 3}}, places);
  }
  SUBCASE("rank 4") {
    std::vector<std::array<index_t, 4>> places;
    for (index_t h = 0; h < 2; ++h) {
      for (index_t i = 0; i < 8; ++i) places.push_back({h, i / 4, i / 2 % 2, i % 2});
    }
    check_against_formula(tensor_view<const T, 4>{memory.data(), {2, 2, 2, 2}}, places);
  }
}

namespace {

// One head of doubles, gain 2 and shift 3, forward.
std::vector<double> normalise(const std::vector<double>& r, double gain = 2, double shift = 3) {
  std::vector<double> out(r.size());
  const auto n = static_cast<index_t>(r.size());
  aft::reparameterize(tensor_view<const double, 2>{r.data(), {1, n}}, tensor_view<const double, 1>{&gain, {1}},
                      tensor_view<const double, 1>{&shift, {1}}, tensor_view<double, 2>{out.data(), {1, n}});
  return out;
}

}  // namespace

TEST_CASE("the standard deviation is torch.std's, with N-1") {
  const auto out = normalise({1, 2, 3, 4}, 1, 0);
  CHECK(out[0] == doctest::Approx(-1.1618950038622251).epsilon(1e-15));
  CHECK(out[3] == doctest::Approx(1.1618950038622251).epsilon(1e-15));
}

TEST_CASE("a large common offset costs nothing, nor do very large and very small filters") {
  const std::vector<double> expected = normalise({1, 2, 4});
  const double offset = 0x1p50;
  CHECK(normalise({offset + 1, offset + 2, offset + 4}) == expected);
  CHECK(normalise({0x1p-1070, 0x1p-1069, 0x1p-1068}) == expected);
  CHECK(normalise({0x1p1020, 0x1p1021, 0x1p1022}) == expected);
  const auto extremes = normalise({-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()}, 1, 0);
  CHECK(extremes[0] == doctest::Approx(-std::sqrt(0.5)));
  CHECK(extremes[1] == doctest::Approx(std::sqrt(0.5)));
}

TEST_CASE("constant and one-tap filters give the shift") {
  CHECK(normalise({0.1}) == std::vector<double>{3});
  CHECK(normalise({0.1, 0.1, 0.1}) == std::vector<double>{3, 3, 3});
  CHECK(normalise({}).empty());
}

TEST_CASE("NaN and infinity spoil their own head only") {
  const double r[] = {1, std::numeric_limits<double>::infinity(), 2, 1, 2, 4};
  const double gain[] = {2, 2}, shift[] = {3, 3};
  double out[6];
  aft::reparameterize(tensor_view<const double, 2>{r, {2, 3}}, tensor_view<const double, 1>{gain, {2}},
                      tensor_view<const double, 1>{shift, {2}}, tensor_view<double, 2>{out, {2, 3}});
  CHECK(std::isnan(out[0]));
  CHECK(std::isnan(out[2]));
  CHECK(std::vector<double>(out + 3, out + 6) == normalise({1, 2, 4}));
}

TEST_CASE("gradients of constant and one-tap filters; no_grad") {
  const float r[] = {5, 5, 5}, gain[] = {2}, shift[] = {1}, dout[] = {1, 2, 4};
  float dr[] = {9, 9, 9}, dgain[] = {9}, dshift[] = {9};
  const tensor_view<const float, 1> g{gain, {1}}, s{shift, {1}};
  for (index_t taps : {index_t{1}, index_t{3}}) {
    aft::reparameterize_backward(tensor_view<const float, 2>{r, {1, taps}}, g, s,
                                 tensor_view<const float, 2>{dout, {1, taps}}, tensor_view<float, 2>{dr, {1, taps}},
                                 tensor_view<float, 1>{dgain, {1}}, tensor_view<float, 1>{dshift, {1}});
    for (index_t i = 0; i < taps; ++i) CHECK(dr[i] == 0.0f);
    CHECK(dgain[0] == 0.0f);
    CHECK(dshift[0] == (taps == 1 ? 1.0f : 7.0f));
  }
  aft::reparameterize_backward(aft::cpu{}, tensor_view<const float, 2>{r, {1, 3}}, g, s,
                               tensor_view<const float, 2>{dout, {1, 3}}, aft::no_grad, aft::no_grad, aft::no_grad);
}

TEST_CASE("a gradient is finite where its quotient by the deviation alone is not") {
  const auto gradient = [](double unit, double gain) {
    const double r[] = {0, unit, 4 * unit}, dout[] = {1, 0, 0.25}, shift = 0;
    std::vector<double> dr(3);
    aft::reparameterize_backward(aft::cpu{}, tensor_view<const double, 2>{r, {1, 3}},
                                 tensor_view<const double, 1>{&gain, {1}}, tensor_view<const double, 1>{&shift, {1}},
                                 tensor_view<const double, 2>{dout, {1, 3}}, tensor_view<double, 2>{dr.data(), {1, 3}},
                                 aft::no_grad, aft::no_grad);
    return dr;
  };
  // Powers of two on both sides cancel, and change no bit.
  const std::vector<double> expected = gradient(1, 3);
  for (int exponent : {-1040, -1030, -500, 500, 1000, 1020})
    CHECK(gradient(std::ldexp(1, exponent), std::ldexp(3, exponent)) == expected);
  CHECK(gradient(0x1p-1040, 0) == std::vector<double>{0, 0, 0});
}

TEST_CASE("a stride that leads to no element may be any number") {
  // One head, one tap beside others, and no tap: undefined behaviour is the sanitizers' to find.
  for (index_t any : {INT64_MAX, INT64_MIN})
    for (index_t heads : {1, 3})
      for (index_t taps : {0, 1, 5}) {
        const auto count = static_cast<std::size_t>(heads * taps);
        const auto r = random_values<float>(count, 1), dout = random_values<float>(count, 2);
        const auto gain = random_values<float>(3, 3), shift = random_values<float>(3, 4);
        const auto run = [&](bool usual) {
          const auto at = [&](index_t extent, index_t stride) {
            return usual || (extent != 1 && count != 0) ? stride : any;
          };
          std::vector<float> written(2 * count + 6);
          float* next = written.data();
          const auto filter = [&](auto* data) {
            using T = std::remove_pointer_t<decltype(data)>;
            return tensor_view<T, 3>{data, {heads, 1, taps}, {at(heads, taps), at(1, taps), at(taps, 1)}};
          };
          const auto head = [&](auto* data) {
            using T = std::remove_pointer_t<decltype(data)>;
            return tensor_view<T, 1>{data, {heads}, {heads == 1 && !usual ? any : 1}};
          };
          const auto out = filter(next), dr = filter(next + count);
          const auto dgain = head(next + 2 * count), dshift = head(next + 2 * count + 3);
          aft::reparameterize(filter(r.data()), head(gain.data()), head(shift.data()), out);
          aft::reparameterize_backward(filter(r.data()), head(gain.data()), head(shift.data()), filter(dout.data()), dr,
                                       dgain, dshift);
          return written;
        };
        CHECK(run(false) == run(true));
      }
}

TEST_CASE("errors name the argument and write nothing") {
  std::vector<float> memory(200, 0.5f), written(200, 42.0f);
  const tensor_view<const float, 2> r{memory.data(), {2, 5}};
  const tensor_view<const float, 1> two{memory.data(), {2}}, three{memory.data(), {3}};
  const tensor_view<float, 2> out{written.data(), {2, 5}};
  const auto run = [&](const auto& filter, const auto& gain, const auto& shift, const auto& result) {
    return error_of([&] { aft::reparameterize(filter, gain, shift, result); });
  };
  check_parts(run(r, three, two, out), {"aft::reparameterize", "'gain'", "extent 0 (H) to be 2", "got 3"});
  check_parts(run(r, two, three, out), {"'shift'", "got 3"});
  check_parts(run(r, two, two, tensor_view<float, 2>{written.data(), {2, 4}}),
              {"'out'", "extent 1 (taps) to be 5", "got 4"});
  check_parts(run(r, two, two, tensor_view<float, 2>{nullptr, {2, 5}}), {"'out'", "null"});
  check_parts(run(tensor_view<const float, 2>{nullptr, {2, 5}}, two, two, out), {"'r'", "10", "null"});
  check_parts(run(r, two, two, tensor_view<float, 2>{memory.data(), {2, 5}}), {"'out'", "'r'", "overlap"});
  check_parts(run(r, two, two, tensor_view<float, 2>{written.data(), {2, 5}, {0, 1}}), {"'out'", "axis 0", "got 0"});
  const auto backward = error_of([&] {
    aft::reparameterize_backward(r, two, two, r, out, tensor_view<float, 1>{written.data() + 3, {2}}, aft::no_grad);
  });
  check_parts(backward, {"aft::reparameterize_backward", "'dgain'", "'dr'", "12 bytes"});
  const auto dout = error_of([&] {
    aft::reparameterize_backward(r, two, two, tensor_view<const float, 2>{memory.data(), {3, 5}}, out, aft::no_grad,
                                 aft::no_grad);
  });
  check_parts(dout, {"'dout'", "(H) to be 2", "got 3"});
  for (float x : written) CHECK(x == 42.0f);
}
