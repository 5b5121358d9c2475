// SPDX-License-Identifier: Apache-2.0
// aft::conv with an aft::sparse_filter against the reference in long double, by the rule of tolerance.hpp.
#include "sparse_call.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace aft::test::sparse;
using aft::index_t;
using aft::tensor_view;
using aft::test::default_executor;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// y, average and lse against the reference.
template <class T, std::size_t Axes>
void check(random_call<T, Axes>& c) {
  using C = aft::compute_t<T>;
  const index_t rows = c.B * c.product(c.queries);
  const auto Q = c.query_view(c.q);
  const auto K = c.key_view();
  const auto V = c.value_view();
  numbers<T> y(static_cast<std::size_t>(rows * c.d), number<T>(42));
  numbers<C> average(y.size(), C(42)), lse(static_cast<std::size_t>(rows * c.hk), C(42));
  aft::options o = c.o;
  o.average = tensor_view<C, Axes + 2>{average.data(), c.shape(c.queries, c.d)};
  const bool has_lse = c.hk % c.H == 0;
  if (has_lse) o.lse = tensor_view<C, Axes + 2>{lse.data(), c.shape(c.queries, c.hk)};
  call_conv(default_executor(), Q, K, V, c.filter(), tensor_view<T, Axes + 2>{y.data(), c.shape(c.queries, c.d)}, o);
  if (aft::test::watched()) return;  // numbers are other trees' matter
  const auto oracle = aft::reference::sparse_conv<long double>(Q, K, V, c.filter(), c.o);
  const auto naive = aft::reference::sparse_conv<C>(Q, K, V, c.filter(), c.o);
  const std::vector<long double> none, got_average = widen(average), naive_average = widen(naive.average);
  aft::test::comparison averages{&got_average,   &oracle.average,  &naive_average,  &none,
                                 oracle.largest, aft::dtype_of<C>, aft::dtype_of<C>};
  CHECK(aft::test::first_mismatch(averages) == "");
  const std::vector<long double> got_y = widen(y), naive_y = widen(naive.y);
  auto scale = oracle.largest;
  for (std::size_t i = 0; i < scale.size() && c.o.gate_fn != aft::gate::none; ++i)
    scale[i] *= std::max(1.0L, std::abs(aft::reference::gate_value(c.o.gate_fn, static_cast<long double>(c.q[i]))));
  aft::test::comparison ys{&got_y, &oracle.y, &naive_y, &none, scale, aft::dtype_of<C>, aft::dtype_of<T>};
  CHECK(aft::test::first_mismatch(ys) == "");
  if (!has_lse) return;
  // The reference has an lse for every value channel.
  std::vector<long double> want_lse, naive_lse;
  const index_t group = c.d / c.hk;
  for (index_t i = 0; i < rows * c.hk; ++i) {
    const auto at = static_cast<std::size_t>(i * group);
    want_lse.push_back(oracle.lse[at]);
    naive_lse.push_back(static_cast<long double>(naive.lse[at]));
  }
  long double most = 1;
  for (long double x : want_lse)
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  const std::vector<long double> got_lse = widen(lse), sizes(want_lse.size(), most);
  aft::test::comparison logs{&got_lse, &want_lse, &naive_lse, &none, sizes, aft::dtype_of<C>, aft::dtype_of<C>};
  CHECK(aft::test::first_mismatch(logs) == "");
}

}  // namespace

TEST_CASE_TEMPLATE("sequences, planes and boxes, heads and key channels, many taps and none", T, float, double,
                   aft::half, aft::bfloat16) {
  unsigned seed = 0;
  for (index_t m : {0, 1, 2, 5})
    for (const auto& [d, hk, H] :
         {std::array<index_t, 3>{6, 6, 6}, {6, 3, 3}, {6, 2, 1}, {12, 12, 2}, {70, 70, 70}, {1, 1, 1}}) {
      const auto try_grid = [&]<std::size_t Axes>(random_call<T, Axes> c, double scale, double value_scale,
                                                  index_t reach) {
        for (bool excluded : {false, true}) {
          c.o.outside = excluded ? aft::outside::excluded : aft::outside::zero_bias;
          c.draw(++seed, scale, value_scale, reach);
          check(c);
        }
      };
      try_grid(random_call<T, 1>{.grid = {11}, .d = d, .hk = hk, .H = H, .m = m}, 1, 1, 3);
      // Storage types differ in how numbers are read, whatever the grid.
      if constexpr (sizeof(T) > 2) {
        try_grid(random_call<T, 2>{.grid = {4, 5}, .d = d, .hk = hk, .H = H, .m = m}, 2, 2, 3);
        try_grid(random_call<T, 3>{.B = 1, .grid = {2, 3, 3}, .d = d, .hk = hk, .H = H, .m = m}, 1, 3, 2);
      }
    }
}

TEST_CASE_TEMPLATE("causal sequences, other numbers of queries, positions", T, float, double, aft::bfloat16) {
  unsigned seed = 100;
  for (const auto& [tq, tk, first] :
       {std::array<index_t, 3>{9, 9, 0}, {40, 40, 0}, {3, 9, 6}, {12, 7, 0}, {5, 9, 2}, {4, 6, 20}})
    for (bool causal : {false, true})
      for (double scale : {1.0, 8.0}) {
        random_call<T, 1> c{.queries = {tq}, .grid = {tk}, .d = 4, .hk = 4, .H = 4, .m = 3};
        c.o.causal = causal;
        c.o.first_query = first;
        c.draw(++seed, scale, 2, 5);
        check(c);
      }
}

TEST_CASE_TEMPLATE("sequences of several chunks of a scan, and more columns than a warp has lanes", T, float, double) {
  unsigned seed = 150;
  for (const auto& [tq, tk, first] : {std::array<index_t, 3>{150, 150, 0}, {70, 150, 80}, {150, 70, 0}, {40, 200, 30}})
    for (bool causal : {false, true})
      for (const auto& [d, hk, H] : {std::array<index_t, 3>{24, 24, 2}, {24, 6, 24}}) {
        random_call<T, 1> c{.queries = {tq}, .grid = {tk}, .d = d, .hk = hk, .H = H, .m = 3};
        c.o.causal = causal;
        c.o.first_query = first;
        c.draw(++seed, 2, 2, 90);
        check(c);
      }
}

TEST_CASE_TEMPLATE("gates, masks and lengths", T, float, double) {
  unsigned seed = 200;
  for (auto g :
       {aft::gate::none, aft::gate::identity, aft::gate::sigmoid, aft::gate::relu, aft::gate::tanh, aft::gate::silu})
    for (bool causal : {false, true}) {
      random_call<T, 1> c{.grid = {10}, .d = 4, .hk = 2, .H = 2, .m = 2};
      c.o.gate_fn = g;
      c.o.causal = causal;
      c.draw(++seed, 2, 2);
      const numbers<std::int32_t> lengths{7, 0}, rows{10, 4};
      c.o.key_lengths = tensor_view<const std::int32_t, 1>{lengths.data(), {2}};
      check(c);
      c.o.query_lengths = tensor_view<const std::int32_t, 1>{rows.data(), {2}};
      check(c);
      numbers<std::uint8_t> keys(10, 1), pairs(100, 1);
      keys[2] = keys[9] = 0;
      for (std::size_t i = 0; i < pairs.size(); i += 3) pairs[i] = 0;
      c.o.mask = tensor_view<const std::uint8_t, 1>{keys.data(), {10}};
      check(c);
      c.o.mask = tensor_view<const std::uint8_t, 2>{pairs.data(), {10, 10}};
      check(c);
    }
}

TEST_CASE_TEMPLATE("rows that see no key are 0, also beside taps whose rows go by the definition", T, float, double) {
  unsigned seed = 250;
  for (double value : {60.0, 1e4, infinity, std::nan("")})
    for (bool causal : {false, true})
      for (index_t keys : {8, 0}) {
        random_call<T, 1> c{.queries = {8}, .grid = {keys}, .d = 4, .hk = 4, .H = 2, .m = 2};
        c.o.causal = causal;
        c.o.gate_fn = aft::gate::none;
        c.draw(++seed);
        c.values[1] = number<aft::compute_t<T>>(value);
        CAPTURE(value);
        CAPTURE(causal);
        CAPTURE(keys);
        const numbers<std::int32_t> lengths{5, 0};
        if (keys != 0) c.o.key_lengths = tensor_view<const std::int32_t, 1>{lengths.data(), {2}};
        check(c);
        // No key for one channel of a vector whose others see all of them.
        c.o.key_lengths = {};
        for (std::size_t s = 0; s < c.k.size(); s += 4) c.k[s] = number<T>(-infinity);
        check(c);
      }
}

TEST_CASE_TEMPLATE("taps that take away nearly all of a row's mass", T, float, double) {
  unsigned seed = 300;
  for (double value : {-1e-3, -1.0, -20.0, -80.0, -1e4, -infinity, 30.0, 90.0, 1e4})
    for (double peak : {0.0, 5.0, 60.0, 300.0, 3000.0, 1e6})
      for (bool causal : {false, true})
        for (index_t m : {1, 3}) {
          random_call<T, 1> c{.B = 1, .grid = {12}, .d = 3, .hk = 3, .H = 3, .m = m};
          c.o.causal = causal;
          c.draw(++seed, 1, 1, 3);
          for (auto& w : c.values) w = static_cast<aft::compute_t<T>>(value);
          for (std::size_t i : {7u, 15u}) c.k[i] = number<T>(peak);
          CAPTURE(value);
          CAPTURE(peak);
          CAPTURE(causal);
          check(c);
        }
}

TEST_CASE_TEMPLATE("keys and values of any size", T, float, double) {
  constexpr double most = std::is_same_v<T, double> ? 1e308 : 3e38;
  unsigned seed = 400;
  for (bool causal : {false, true})
    for (bool excluded : {false, true}) {
      const auto run = [&](const auto& change) {
        random_call<T, 1> c{.B = 1, .grid = {10}, .d = 3, .hk = 3, .H = 3, .m = 2};
        c.o.causal = causal;
        c.o.outside = excluded ? aft::outside::excluded : aft::outside::zero_bias;
        c.draw(++seed, 1, 2, 4);
        change(c);
        check(c);
      };
      for (double size : {1e3, 1e5, most}) {
        run([&](auto& c) {
          for (auto& x : c.k) x = number<T>(static_cast<double>(x) < 0 ? -size : size);
        });
        run([&](auto& c) {
          for (auto& x : c.k) x = number<T>(-size);
        });
        run([&](auto& c) { c.k[4] = number<T>(size); });
        run([&](auto& c) { c.k[0] = c.k[1] = c.k[13] = number<T>(-size); });
      }
      for (double size : {most, 1e30, 1e-30, 1e-45}) {
        run([&](auto& c) {
          for (auto& x : c.v) x = number<T>(size * (static_cast<double>(x) / 8));
        });
        run([&](auto& c) { c.v[25] = number<T>(size); });
        run([&](auto& c) {
          for (auto& x : c.v) x = number<T>(size);
        });
      }
      run([&](auto& c) {
        for (auto& x : c.v) x = T(0);
      });
      run([&](auto& c) {
        for (std::size_t i = 0; i < c.k.size(); i += 2) c.k[i] = number<T>(-infinity);
      });
      run([&](auto& c) {
        for (auto& x : c.k) x = number<T>(-infinity);
      });
      // What no row sees may be anything; what a row sees makes it no number.
      run([&](auto& c) { c.k[4] = number<T>(-infinity), c.v[4] = number<T>(std::nan("")); });
      run([&](auto& c) { c.v[4] = number<T>(std::nan("")), c.v[8] = number<T>(infinity); });
      run([&](auto& c) { c.k[4] = number<T>(std::nan("")), c.k[8] = number<T>(infinity); });
      run([&](auto& c) {
        c.values[0] = number<aft::compute_t<T>>(std::nan("")), c.values[3] = number<aft::compute_t<T>>(infinity);
      });
      // A tap of -inf hides its key from the row, a large value and NaN with it.
      for (double hidden : {most, std::nan("")})
        run([&](auto& c) {
          for (auto& w : c.values) w = number<aft::compute_t<T>>(-infinity);
          for (std::size_t h = 0; h < 3; ++h) c.taps[2 * h] = h == 1 ? -2 : 0, c.taps[2 * h + 1] = -4;
          c.v[10] = c.v[14] = number<T>(hidden);
        });
    }
}

TEST_CASE_TEMPLATE("keys and values that are far from the first ones, in some channels of many", T, float, double) {
  unsigned seed = 500;
  for (double rise : {0.0, 30.0, -30.0, 90.0, -90.0, 2900.0, -2900.0})
    for (double growth : {1.0, 1e12, 1e-12, 1e30, 1e-30}) {
      random_call<T, 1> c{.B = 1, .grid = {37}, .d = 20, .hk = 20, .H = 4, .m = 2};
      c.draw(++seed, 1, 1, 4);
      // More keys than are looked at first, and channels beside them that stay as they are.
      for (std::size_t s = 0; s < 37; ++s)
        for (std::size_t l = 0; l < 20; l += 3) {
          const double share = s < 20 ? 0 : 1;
          c.k[s * 20 + l] = number<T>(static_cast<double>(c.k[s * 20 + l]) + share * rise);
          if (s >= 20) c.v[s * 20 + l] = number<T>(static_cast<double>(c.v[s * 20 + l]) * growth);
        }
      check(c);
    }
}
