// SPDX-License-Identifier: Apache-2.0
#include "support/examples/finite_difference.hpp"

#include "common/byte_lm/embedding.hpp"
#include "common/layers/gelu.hpp"
#include "common/layers/layer_norm.hpp"
#include "common/layers/mlp.hpp"

using namespace examples;
using namespace examples::byte_lm;
using namespace examples::test;

namespace {

constexpr index_t channels = 32;
// More than one piece of rows, the last one short.
constexpr index_t rows = rows_per_piece + 37;
constexpr int threads = 2;

}  // namespace

TEST_CASE("layer norm: mean 0, variance 1, then gain and bias") {
  layer_norm<double> norm("n", channels, rows);
  buffer<double> x(rows * channels);
  buffer<double> y(rows * channels);
  fill_normal(x, 1, 5);
  for (double& value : x) value += 1000;
  norm.forward({0, rows, 0, 0}, x.data(), y.data());
  for (index_t t = 0; t < rows; ++t) {
    double mean = 0;
    double square = 0;
    for (index_t c = 0; c < channels; ++c) {
      mean += y[t * channels + c] / channels;
      square += y[t * channels + c] * y[t * channels + c] / channels;
    }
    CHECK(std::abs(mean) < 1e-10);
    CHECK(square == doctest::Approx(1).epsilon(1e-5));
  }
}

TEST_CASE("layer norm: gradient of x, gain and bias") {
  layer_norm<double> norm("n", channels, rows);
  fill_normal(norm.gain.value, 1);
  fill_normal(norm.bias.value, 2);
  buffer<double> x(rows * channels);
  buffer<double> y(rows * channels);
  buffer<double> dy(rows * channels);
  buffer<double> dx(rows * channels);
  fill_normal(x, 3, 2);
  fill_normal(dy, 4);
  const auto value = [&] {
    parallel_rows(rows, threads, [&](row_range r) { norm.forward(r, x.data(), y.data() + r.first * channels); });
    return dot_all(y, dy);
  };
  value();
  parallel_rows(rows, threads,
                [&](row_range r) { norm.backward(r, x.data(), dy.data() + r.first * channels, dx.data()); });
  norm.finish_backward(rows);
  check_gradient("x", x.data(), dx.data(), x.size(), value);
  check_gradient("gain", norm.gain.value.data(), norm.gain.grad.data(), channels, value);
  check_gradient("bias", norm.bias.value.data(), norm.bias.grad.data(), channels, value);
}

TEST_CASE("gelu: value against the tanh formula, slope against differences") {
  constexpr index_t count = 64;
  buffer<double> x(count);
  buffer<double> zero(count);
  buffer<double> y(count);
  buffer<double> ones(count);
  buffer<double> d(count);
  buffer<double> dbias(count);
  for (index_t i = 0; i < count; ++i) x[i] = -8.0 + 0.25 * static_cast<double>(i);
  std::fill(ones.begin(), ones.end(), 1.0);
  std::fill(d.begin(), d.end(), 1.0);
  const auto value = [&] {
    gelu_forward<double>(1, count, x.data(), zero.data(), y.data());
    return dot_all(y, ones);
  };
  value();
  for (index_t i = 0; i < count; ++i) {
    const double u = x[i];
    const double expected =
        0.5 * u * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (u + 0.044715 * u * u * u)));
    CHECK(std::abs(y[i] - expected) < 1e-14);
  }
  gelu_backward<double>(1, count, x.data(), zero.data(), y.data(), d.data(), dbias.data());
  check_gradient("u", x.data(), d.data(), count, value, count);
}

TEST_CASE("mlp: gradient of x and of every parameter") {
  mlp<double> layer("m", channels, rows);
  workspace<double> work(rows, channels, mlp<double>::expansion * channels, threads);
  parameter_list<double> all;
  layer.collect(all);
  CHECK(all.size() == 6);
  std::uint64_t stream = 0;
  for (parameter<double>* p : all) fill_normal(p->value, ++stream, 0.3);
  buffer<double> x(rows * channels);
  buffer<double> y(rows * channels);
  buffer<double> dy(rows * channels);
  buffer<double> dx(rows * channels);
  fill_normal(x, 20);
  fill_normal(dy, 21);
  const auto value = [&] {
    layer.forward(rows, x.data(), y.data(), work, threads);
    return dot_all(y, dy);
  };
  value();
  std::copy(dy.begin(), dy.end(), dx.begin());
  layer.backward(rows, x.data(), dx.data(), work, threads);
  check_gradient("x", x.data(), dx.data(), x.size(), value);
  for (parameter<double>* p : all) check_gradient(p->name, p->value.data(), p->grad.data(), p->count(), value, 12);
}

TEST_CASE("embedding and tied head: gradient of x and of every table") {
  constexpr sequences s{3, 55};
  embedding<double> layer(channels, s.time, s.rows());
  workspace<double> work(s.rows(), channels, vocabulary, threads);
  parameter_list<double> all;
  layer.collect(all);
  std::uint64_t stream = 40;
  for (parameter<double>* p : all) fill_normal(p->value, ++stream, 0.5);
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> next;
  random_stream random(3, 1);
  for (index_t i = 0; i < s.rows(); ++i) {
    bytes.push_back(static_cast<std::uint8_t>(random.below(20)));
    next.push_back(static_cast<std::uint8_t>(random.below(20)));
  }
  buffer<double> x(s.rows() * channels);
  buffer<double> dx(s.rows() * channels);
  const auto value = [&] {
    layer.forward(s, bytes.data(), x.data(), threads);
    return layer.loss(s, x.data(), next.data(), work, threads) / static_cast<double>(s.rows());
  };
  value();
  const double loss = layer.loss_and_gradient(s, x.data(), next.data(), dx.data(), work, threads);
  CHECK(loss / static_cast<double>(s.rows()) == doctest::Approx(value()).epsilon(1e-12));
  check_gradient("x", x.data(), dx.data(), x.size(),
                 [&] { return layer.loss(s, x.data(), next.data(), work, threads) / static_cast<double>(s.rows()); });
  layer.backward(s, bytes.data(), dx.data(), threads);
  // The first 20 rows of the byte table serve both ends, the others the head only.
  for (parameter<double>* p : all) check_gradient(p->name, p->value.data(), p->grad.data(), p->count(), value, 60);
}
