// SPDX-License-Identifier: Apache-2.0
// attention_map against AFT Eq. 3 written out, against the operators, and at the ends of the number range.
#include "expect_error.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace {

using aft::index_t;
using aft::tensor_view;
using aft::test::check_parts;
using aft::test::error_of;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(index_t n, unsigned seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values;
  for (index_t i = 0; i < n; ++i) values.push_back(normal(rng));
  return values;
}

// Eq. 3 for one (b, c), given k[s], w[t,s] and what t sees of s; x in long double never overflows for these inputs.
std::vector<double> softmax_row(index_t Tk, const std::function<long double(index_t)>& x,
                                const std::function<bool(index_t)>& seen) {
  long double most = -std::numeric_limits<long double>::infinity(), sum = 0;
  for (index_t s = 0; s < Tk; ++s) most = seen(s) && x(s) > most ? x(s) : most;
  for (index_t s = 0; s < Tk; ++s) sum += seen(s) ? std::exp(x(s) - most) : 0;
  std::vector<double> row;
  for (index_t s = 0; s < Tk; ++s) row.push_back(seen(s) ? static_cast<double>(std::exp(x(s) - most) / sum) : 0);
  return row;
}

}  // namespace

TEST_CASE("dense bias with heads, batch, causal order, mask and lengths") {
  constexpr index_t B = 2, Tq = 5, Tk = 7, hk = 4, H = 2;
  const auto k = random_values(B * Tk * hk, 1, 3), w = random_values(B * H * Tq * Tk, 2, 3);
  std::vector<std::uint8_t> mask(Tq * Tk, 1);
  mask[3 * Tk + 2] = 0;
  mask[4 * Tk + 0] = 0;
  const std::int64_t lengths[] = {6, 99};
  std::vector<float> out(B * Tq * Tk * hk, 42.0f);
  const tensor_view<const float, 4> w_view{w.data(), {B, H, Tq, Tk}};
  const tensor_view<float, 4> a{out.data(), {B, Tq, Tk, hk}};
  for (bool causal : {false, true}) {
    aft::attention_map(aft::cpu{}, tensor_view<const float, 3>{k.data(), {B, Tk, hk}}, aft::dense_bias{w_view}, a,
                       {.causal = causal,
                        .mask = tensor_view<const std::uint8_t, 3>{mask.data(), {1, Tq, Tk}},
                        .key_lengths = tensor_view<const std::int64_t, 1>{lengths, {B}}});
    for (index_t b = 0; b < B; ++b) {
      for (index_t t = 0; t < Tq; ++t) {
        for (index_t c = 0; c < hk; ++c) {
          const auto row = softmax_row(
              Tk,
              [&](index_t s) {
                return static_cast<long double>(k[static_cast<std::size_t>((b * Tk + s) * hk + c)]) +
                       static_cast<long double>(w_view(b, c / 2, t, s));
              },
              [&](index_t s) {
                return (!causal || s <= t) && s < lengths[b] && mask[static_cast<std::size_t>(t * Tk + s)] != 0;
              });
          for (index_t s = 0; s < Tk; ++s) {
            CHECK(static_cast<double>(a(b, t, s, c)) ==
                  doctest::Approx(row[static_cast<std::size_t>(s)]).epsilon(1e-7));
          }
        }
      }
    }
  }
}

TEST_CASE("the map times v is the operator's average, for every kind of bias") {
  constexpr index_t T = 12, d = 4;
  const auto k = random_values(T * 2, 1), v = random_values(T * d, 2), w = random_values(400, 3);
  std::vector<float> out(T * T * d), y(T * d);
  const tensor_view<const float, 2> k_view{k.data(), {T, 2}}, v_view{v.data(), {T, d}};
  const tensor_view<float, 3> a{out.data(), {T, T, d}};
  const tensor_view<float, 2> y_view{y.data(), {T, d}};
  const auto check = [&] {
    for (index_t t = 0; t < T; ++t) {
      for (index_t c = 0; c < d; ++c) {
        double sum = 0, ones = 0;
        for (index_t s = 0; s < T; ++s) {
          sum += static_cast<double>(a(t, s, c)) * static_cast<double>(v_view(s, c));
          ones += static_cast<double>(a(t, s, c));
        }
        CHECK(static_cast<double>(y_view(t, c)) == doctest::Approx(sum).epsilon(1e-5).scale(1));
        CHECK(ones == doctest::Approx(1).epsilon(1e-6));
      }
    }
  };
  const aft::dense_bias dense{tensor_view<const float, 3>{w.data(), {2, T, T}}};
  const aft::factorized_bias factors{tensor_view<const float, 3>{w.data(), {2, T, 3}},
                                     tensor_view<const float, 2>{w.data() + 100, {T, 3}}};
  const aft::window win{.before = 3, .after = 1};
  const aft::banded_bias band{tensor_view<const float, 2>{w.data(), {T, win.width()}}};
  for (bool causal : {false, true}) {
    for (aft::outside out_of_window : {aft::outside::zero_bias, aft::outside::excluded}) {
      const aft::options opt{.causal = causal, .gate_fn = aft::gate::none, .outside = out_of_window};
      const aft::options everywhere{.causal = causal, .gate_fn = aft::gate::none};
      {
        INFO("dense");
        aft::full(v_view, k_view, v_view, dense, y_view, everywhere);
        aft::attention_map(k_view, dense, a, everywhere);
        check();
      }
      {
        INFO("factorized");
        aft::full(v_view, k_view, v_view, factors, y_view, everywhere);
        aft::attention_map(k_view, factors, a, everywhere);
        check();
      }
      {
        INFO("dense in a window");
        aft::local(v_view, k_view, v_view, dense, win, y_view, opt);
        aft::attention_map(k_view, dense, win, a, opt);
        check();
      }
      {
        INFO("factorized in a window");
        aft::local(v_view, k_view, v_view, factors, win, y_view, opt);
        aft::attention_map(k_view, factors, win, a, opt);
        check();
      }
      {
        INFO("banded");
        aft::local(v_view, k_view, v_view, band, win, y_view, opt);
        aft::attention_map(aft::cpu{}, k_view, band, win, a, opt);
        check();
      }
      {
        INFO("filter on a sequence");
        const tensor_view<const float, 2> filter{w.data(), {2, 4}};
        aft::conv(v_view, k_view, v_view, filter, y_view, opt);
        aft::attention_map(k_view, filter, a, opt);
        check();
      }
      if (causal) continue;
      {
        INFO("filter on a plane");
        const tensor_view<const float, 3> filter{w.data(), {2, 3, 2}};
        const tensor_view<const float, 4> k4{k.data(), {1, 3, 4, 2}}, v4{v.data(), {1, 3, 4, d}};
        aft::conv(v4, k4, v4, filter, tensor_view<float, 4>{y.data(), {1, 3, 4, d}}, opt);
        aft::attention_map(k4, filter, tensor_view<float, 4>{out.data(), {1, T, T, d}}, opt);
        check();
      }
      {
        INFO("filter in space");
        const tensor_view<const float, 4> filter{w.data(), {4, 2, 2, 3}};
        const tensor_view<const float, 5> k5{k.data(), {1, 2, 3, 2, 2}}, v5{v.data(), {1, 2, 3, 2, d}};
        aft::conv(v5, k5, v5, filter, tensor_view<float, 5>{y.data(), {1, 2, 3, 2, d}}, opt);
        aft::attention_map(k5, filter, a, opt);
        check();
      }
    }
  }
}

TEST_CASE("the ends of the number range are exact") {
  constexpr float most = std::numeric_limits<float>::max();
  const float k[] = {most, -most, 60, -60};
  const float w[] = {most, most, -60, 60, -most, -most, 60, -60, -inf, -inf, -inf, -inf};
  float out[12];
  const tensor_view<float, 3> a{out, {3, 4, 1}};
  aft::attention_map(tensor_view<const float, 2>{k, {4, 1}}, aft::dense_bias{tensor_view<const float, 2>{w, {3, 4}}},
                     a);
  const float expected[] = {1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
  for (int i = 0; i < 12; ++i) CHECK(out[i] == expected[i]);

  constexpr double largest = std::numeric_limits<double>::max();
  const double k2[] = {largest, largest, -largest}, w2[] = {largest, largest, -largest};
  double out2[3];
  aft::attention_map(tensor_view<const double, 2>{k2, {3, 1}},
                     aft::dense_bias{tensor_view<const double, 2>{w2, {1, 3}}},
                     tensor_view<double, 3>{out2, {1, 3, 1}});
  CHECK(out2[0] == 0.5);
  CHECK(out2[1] == 0.5);
  CHECK(out2[2] == 0.0);
}

TEST_CASE("hidden keys may hold anything; what is seen spoils its row only") {
  const float k[] = {1, not_a_number, 2, inf};
  const float w[] = {0, -inf, 0, -inf,   // hides the bad keys
                     0, 0,    0, -inf};  // sees the NaN
  float out[8];
  aft::attention_map(tensor_view<const float, 2>{k, {4, 1}}, aft::dense_bias{tensor_view<const float, 2>{w, {2, 4}}},
                     tensor_view<float, 3>{out, {2, 4, 1}});
  CHECK(out[0] == doctest::Approx(1 / (1 + std::exp(1.0))));
  CHECK(out[1] == 0.0f);
  CHECK(out[3] == 0.0f);
  CHECK(std::isnan(out[4]));
  CHECK(std::isnan(out[6]));
  const std::uint8_t none[] = {0, 0, 0, 0};
  aft::attention_map(tensor_view<const float, 2>{k, {4, 1}}, aft::dense_bias{tensor_view<const float, 2>{w, {2, 4}}},
                     tensor_view<float, 3>{out, {2, 4, 1}}, {.mask = tensor_view<const std::uint8_t, 2>{none, {1, 4}}});
  for (float x : out) CHECK(x == 0.0f);
}

TEST_CASE_TEMPLATE("all element types, and out in any of them", T, float, double, aft::half, aft::bfloat16) {
  const T k[] = {T(1.0f), T(0.0f), T(-1.0f)};
  const T w[] = {T(0.5f), T(0.0f), T(-0.5f)};
  T same[3];
  double wide[3];
  const tensor_view<const T, 2> k_view{k, {3, 1}};
  const aft::dense_bias bias{tensor_view<const T, 2>{w, {1, 3}}};
  aft::attention_map(k_view, bias, tensor_view<T, 3>{same, {1, 3, 1}});
  aft::attention_map(k_view, bias, tensor_view<double, 3>{wide, {1, 3, 1}});
  const double sum = std::exp(1.5) + 1 + std::exp(-1.5);
  CHECK(wide[0] == doctest::Approx(std::exp(1.5) / sum).epsilon(1e-14));
  CHECK(wide[2] == doctest::Approx(std::exp(-1.5) / sum).epsilon(1e-14));
  for (int s = 0; s < 3; ++s) CHECK(static_cast<double>(same[s]) == doctest::Approx(wide[s]).epsilon(1.0 / 256));
}

TEST_CASE("errors name the argument and write nothing; empty maps are fine") {
  constexpr index_t B = 2, Tq = 3, Tk = 4, hk = 2;
  std::vector<float> memory(200, 0.5f), written(200, 42.0f);
  const tensor_view<const float, 3> k{memory.data(), {B, Tk, hk}};
  const tensor_view<const float, 2> w{memory.data(), {Tq, Tk}};
  const auto run = [&](std::array<index_t, 4> extents, const tensor_view<const float, 2>& bias,
                       const aft::options& opt = {}) {
    return error_of([&] {
      aft::attention_map(k, aft::dense_bias{bias}, tensor_view<float, 4>{written.data(), extents}, opt);
    });
  };
  check_parts(run({3, Tq, Tk, hk}, w), {"aft::attention_map", "'out'", "extent 0 (B) to be 2", "got 3"});
  check_parts(run({B, 5, Tk, hk}, w), {"'out'", "extent 1 (Tq) to be 3", "got 5"});
  check_parts(run({B, Tq, 5, hk}, w), {"'out'", "extent 2 (Tk) to be 4", "got 5"});
  check_parts(run({B, Tq, Tk, 3}, w), {"'out'", "channels", "multiple of hk = 2", "got 3"});
  check_parts(run({B, Tq, Tk, hk}, {memory.data(), {Tq, 5}}), {"'w'", "(Tk) to be 4", "got 5"});
  check_parts(run({B, Tq, Tk, hk}, w, {.mask = tensor_view<const float, 3>{memory.data(), {1, 1, Tk}}}),
              {"'mask'", "uint8"});
  check_parts(error_of([&] {
                aft::attention_map(k, aft::dense_bias{w}, tensor_view<float, 3>{written.data(), {Tq, Tk, hk}});
              }),
              {"'out'", "batch axis", "2", "got 1"});
  check_parts(error_of([&] {
                aft::attention_map(k, aft::dense_bias{w}, aft::window::strict(2),
                                   tensor_view<float, 4>{written.data(), {B, Tk, Tk, hk}});
              }),
              {"'out'", "(Tq) to be 3", "got 4"});
  check_parts(run({B, Tq, Tk, hk}, w, {.first_query = -2}), {"'first_query'", "got -2"});
  check_parts(run({B, Tq, Tk, hk}, w, {.query_lengths = tensor_view<const float, 1>{memory.data(), {B}}}),
              {"'query_lengths'", "got float"});
  for (float x : written) CHECK(x == 42.0f);
  const tensor_view<const float, 3> empty{nullptr, {B, 0, hk}};
  aft::attention_map(empty, aft::dense_bias{tensor_view<const float, 2>{nullptr, {Tq, 0}}},
                     tensor_view<float, 4>{nullptr, {B, Tq, 0, hk}});
}

TEST_CASE("a stride that leads to no element may be any number") {
  // With one batch element, query, key, channel and head, and with none; the lengths' and the mask's strides too.
  const auto numbers = random_values(64, 1);
  const std::vector<std::uint8_t> seen(16, 1);
  const std::vector<std::int64_t> length(2, 3);
  for (index_t any : {INT64_MAX, INT64_MIN})
    for (int few = 0; few < 5; ++few)
      for (index_t extent : {0, 1}) {
        const auto size = [&](int axis, index_t usual) { return axis == few ? extent : usual; };
        const index_t B = size(0, 2), Tq = size(1, 3), Tk = size(2, 4), d = size(3, 2), H = few == 3 ? 1 : size(4, 2);
        if (H == 0) continue;
        const auto run = [&](bool usual) {
          const auto view = [&]<class T, std::size_t Rank>(T* data, std::array<index_t, Rank> extents) {
            const tensor_view<T, Rank> ordinary{data, extents};
            std::array<index_t, Rank> strides = ordinary.strides();
            for (std::size_t i = 0; i < Rank; ++i)
              if (!usual && (ordinary.size() == 0 || extents[i] == 1)) strides[i] = any;
            return tensor_view<T, Rank>{data, extents, strides};
          };
          std::vector<float> out(64);
          aft::attention_map(view(numbers.data(), std::array{B, Tk, d}),
                             aft::dense_bias{view(numbers.data() + 1, std::array{B, H, Tq, Tk})},
                             view(out.data(), std::array{B, Tq, Tk, d}),
                             {.mask = view(seen.data(), std::array{index_t{1}, Tq, Tk}),
                              .key_lengths = view(length.data(), std::array{B})});
          return out;
        };
        CHECK(run(false) == run(true));
      }
}

TEST_CASE("the last rows of a map alone are those of the whole, and rows of padding are 0") {
  constexpr index_t T = 9, last = 3, hk = 2;
  std::vector<float> k(T * hk), w(T * T), r(4);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 7 % 11) / 4 - 1;
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i * 5 % 13) / 3 - 2;
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<float>(i) / 2 - 1;
  const tensor_view<const float, 2> keys{k.data(), {T, hk}}, rows{w.data(), {T, T}}, filter{r.data(), {1, 4}};
  const tensor_view<const float, 2> last_rows{w.data() + (T - last) * T, {last, T}};
  std::vector<double> whole(T * T * hk), part(last * T * hk);
  const tensor_view<double, 3> all{whole.data(), {T, T, hk}}, some{part.data(), {last, T, hk}};
  const auto expect_same = [&] {
    for (std::size_t i = 0; i < part.size(); ++i) CHECK(part[i] == whole[whole.size() - part.size() + i]);
  };
  for (bool causal : {false, true}) {
    const aft::options everything{.causal = causal}, end{.causal = causal, .first_query = T - last};
    aft::attention_map(keys, aft::dense_bias{rows}, all, everything);
    aft::attention_map(keys, aft::dense_bias{last_rows}, some, end);
    expect_same();
    aft::attention_map(keys, aft::dense_bias{rows}, aft::window{2, 1}, all, everything);
    aft::attention_map(keys, aft::dense_bias{last_rows}, aft::window{2, 1}, some, end);
    expect_same();
    aft::attention_map(keys, filter, all, everything);
    aft::attention_map(keys, filter, some, end);
    expect_same();
  }
  const std::int32_t length = 2;
  aft::attention_map(keys, aft::dense_bias{rows}, all,
                     {.query_lengths = tensor_view<const std::int32_t, 1>{&length, {1}}});
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK((whole[i] == 0) == (i >= 2 * T * hk));
}

TEST_CASE("no weight of a row that sees NaN or +inf is a number, however small the pair's own is") {
  // 0 is what a hidden pair has, and e^-2000 is 0 in double: the rows' other weights must not be taken for such.
  constexpr index_t T = 4;
  for (const float seen : {not_a_number, inf}) {
    const std::vector<float> k{0, -2000, 1, 5};
    std::vector<float> w(T * T, 0.0f);
    w[0 * T + 2] = seen;
    std::vector<double> out(T * T, 42.0);
    const std::uint8_t mask[] = {1, 1, 1, 0};
    aft::attention_map(
        tensor_view<const float, 2>{k.data(), {T, 1}}, aft::dense_bias{tensor_view<const float, 2>{w.data(), {T, T}}},
        tensor_view<double, 3>{out.data(), {T, T, 1}}, {.mask = tensor_view<const std::uint8_t, 1>{mask, {T}}});
    for (index_t t = 0; t < T; ++t) {
      for (index_t s = 0; s < T; ++s) {
        const double a = out[static_cast<std::size_t>(t * T + s)];
        CHECK(std::isnan(a) == (t == 0 && s < 3));
        if (s == 3) CHECK(a == 0);
      }
    }
  }
}
