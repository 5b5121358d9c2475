// SPDX-License-Identifier: Apache-2.0
#include "support/examples/finite_difference.hpp"

#include "common/mixers/mixer.hpp"

#include <functional>
#include <limits>
#include <memory>

using namespace examples;
using namespace examples::test;

namespace {

// A grid of 10 x 7: two blocks of attention, the second one short.
constexpr sequences whole{2, 70};
constexpr mixer_shape shape{.channels = 32,
                            .heads = 4,
                            .context = 70,
                            .max_batch = 2,
                            .window = 5,
                            .tied_keys = true,
                            .causal = false,
                            .columns = 7};
const aft::cpu exec{.threads = 2};

struct fixture {
  explicit fixture(mixer_kind kind)
      : mix(make_mixer<double>(kind, "mixer", shape)),
        qkv(whole.rows() * mix->input_width()),
        y(whole.rows() * shape.channels),
        dy(y.size()),
        dqkv(qkv.size()) {
    fill_normal(qkv, 1);
    fill_normal(dy, 2);
    mix->collect(own);
    std::uint64_t stream = 3;
    for (parameter<double>* p : own) fill_normal(p->value, stream++);
  }
  double value() {
    mix->forward(whole, qkv.data(), y.data(), exec);
    return dot_all(y, dy);
  }

  std::unique_ptr<mixer<double>> mix;
  parameter_list<double> own;
  buffer<double> qkv, y, dy, dqkv;
};

using bias_of = std::function<long double(index_t t, index_t s, index_t head)>;

/// w[t,s] from the parameters by the papers' definitions: AFT Eq. 4, 5, 6 and 8.
bias_of definition(mixer_kind kind, const fixture& f) {
  const double* w = f.own.empty() ? nullptr : f.own[0]->value.data();
  if (kind == mixer_kind::full) return [w](index_t t, index_t s, index_t) { return w[t * whole.time + s]; };
  if (kind == mixer_kind::local)
    return [w](index_t t, index_t s, index_t) -> long double {
      return std::abs(t - s) < shape.window ? w[t * (2 * shape.window - 1) + s - t + shape.window - 1] : 0;
    };
  if (kind == mixer_kind::simple) return [](index_t, index_t, index_t) { return 0; };
  return [&f, w](index_t t, index_t s, index_t head) -> long double {
    const index_t left = (shape.window - 1) / 2;
    const index_t i = s / shape.columns - t / shape.columns + left;
    const index_t j = s % shape.columns - t % shape.columns + left;
    if (i < 0 || j < 0 || i >= shape.window || j >= shape.window) return 0;
    const index_t taps = shape.window * shape.window;
    const double* r = w + head * taps;
    long double mean = 0;
    for (index_t tap = 0; tap < taps; ++tap) mean += r[tap];
    mean /= taps;
    long double squares = 0;
    for (index_t tap = 0; tap < taps; ++tap) squares += (r[tap] - mean) * (r[tap] - mean);
    const long double deviation = std::sqrt(squares / (taps - 1));
    return f.own[1]->value[head] * (r[i * shape.window + j] - mean) / deviation + f.own[2]->value[head];
  };
}

}  // namespace

TEST_CASE("image mixers: the papers' sums, with later rows") {
  for (const mixer_kind kind : image_mixers) {
    if (kind == mixer_kind::attention) continue;
    fixture f(kind);
    f.value();
    const bias_of w = definition(kind, f);
    const index_t width = f.mix->input_width();
    const index_t key_channels = width - 2 * shape.channels;
    CHECK(key_channels == (kind == mixer_kind::conv2d ? shape.heads : shape.channels));
    long double worst = 0;
    for (index_t b = 0; b < whole.batch; ++b)
      for (index_t t = 0; t < whole.time; ++t)
        for (index_t c = 0; c < shape.channels; ++c) {
          const double* rows = f.qkv.data() + b * whole.time * width;
          const index_t k_at = shape.channels + c / (shape.channels / key_channels);
          long double sum = 0, total = 0;
          for (index_t s = 0; s < whole.time; ++s) {
            const long double a = std::exp(rows[s * width + k_at] + w(t, s, c / (shape.channels / shape.heads)));
            total += a;
            sum += a * rows[s * width + shape.channels + key_channels + c];
          }
          const long double gate = 1 / (1 + std::exp(static_cast<long double>(-rows[t * width + c])));
          const long double expected = gate * sum / total;
          worst = std::max(worst, std::abs(expected - f.y[(b * whole.time + t) * shape.channels + c]));
        }
    INFO(name_of(kind), ": ", static_cast<double>(worst));
    // Two sums of 70 terms, of values below 5 in size, each with 70 roundings of half a unit.
    CHECK(worst < 2 * 70 * 5 * static_cast<long double>(std::numeric_limits<double>::epsilon()));
  }
}

TEST_CASE("image mixers: attention by the textbook, with later rows") {
  fixture f(mixer_kind::attention);
  f.value();
  const index_t width = shape.channels / shape.heads;
  const index_t stride = f.mix->input_width();
  long double worst = 0;
  for (index_t b = 0; b < whole.batch; ++b)
    for (index_t h = 0; h < shape.heads; ++h)
      for (index_t t = 0; t < whole.time; ++t) {
        const auto at = [&](index_t row, index_t part, index_t c) -> long double {
          return f.qkv[(b * whole.time + row) * stride + part * shape.channels + h * width + c];
        };
        std::vector<long double> sum(static_cast<std::size_t>(width));
        long double total = 0;
        for (index_t s = 0; s < whole.time; ++s) {
          long double logit = 0;
          for (index_t c = 0; c < width; ++c) logit += at(t, 0, c) * at(s, 1, c);
          const long double weight = std::exp(logit / std::sqrt(static_cast<long double>(width)));
          total += weight;
          for (index_t c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += weight * at(s, 2, c);
        }
        for (index_t c = 0; c < width; ++c)
          worst = std::max(worst, std::abs(sum[static_cast<std::size_t>(c)] / total -
                                           f.y[(b * whole.time + t) * shape.channels + h * width + c]));
      }
  CHECK(worst < 2 * 70 * 5 * static_cast<long double>(std::numeric_limits<double>::epsilon()));
}

TEST_CASE("image mixers: gradient of q, k, v and of every parameter") {
  for (const mixer_kind kind : image_mixers) {
    INFO(name_of(kind));
    fixture f(kind);
    const auto value = [&] { return f.value(); };
    value();
    f.mix->backward(whole, f.qkv.data(), f.y.data(), f.dy.data(), f.dqkv.data(), exec);
    check_gradient("qkv", f.qkv.data(), f.dqkv.data(), f.qkv.size(), value, 80);
    for (parameter<double>* p : f.own) check_gradient(p->name, p->value.data(), p->grad.data(), p->count(), value, 30);
  }
}

TEST_CASE("image mixers: the same bits for any number of threads, and no streams") {
  for (const mixer_kind kind : image_mixers) {
    INFO(name_of(kind));
    fixture f(kind);
    f.value();
    f.mix->backward(whole, f.qkv.data(), f.y.data(), f.dy.data(), f.dqkv.data(), exec);
    for (const int threads : {1, 3}) {
      fixture g(kind);
      g.mix->forward(whole, g.qkv.data(), g.y.data(), aft::cpu{.threads = threads});
      g.mix->backward(whole, g.qkv.data(), g.y.data(), g.dy.data(), g.dqkv.data(), aft::cpu{.threads = threads});
      CHECK(std::equal(f.y.begin(), f.y.end(), g.y.begin()));
      CHECK(std::equal(f.dqkv.begin(), f.dqkv.end(), g.dqkv.begin()));
    }
    CHECK_THROWS_AS(f.mix->make_stream(1), std::logic_error);
  }
}

TEST_CASE("conv2d: a gain at the start is the deviation of every filter, and its mean is 0") {
  mixer_shape with_gain = shape;
  with_gain.filter.gain = 2.5;
  const auto mix = make_mixer<double>(mixer_kind::conv2d, "mixer", with_gain);
  fill_normal(mix->position_bias()->value, 7);
  const double* filter = mix->operator_bias();
  const index_t taps = shape.window * shape.window;
  for (index_t h = 0; h < shape.heads; ++h, filter += taps) {
    double sum = 0, squares = 0;
    for (index_t j = 0; j < taps; ++j) sum += filter[j];
    for (index_t j = 0; j < taps; ++j) squares += filter[j] * filter[j];
    // As sums of so many terms are rounded.
    const double u = 4 * static_cast<double>(taps) * 0x1p-53;
    CHECK(std::abs(sum) <= u * static_cast<double>(taps) * 2.5);
    CHECK(std::abs(std::sqrt(squares / static_cast<double>(taps - 1)) - 2.5) <= u * 2.5);
  }
}

TEST_CASE("conv2d: any number of grid rows, and a filter that starts at 0") {
  fixture f(mixer_kind::conv2d);
  for (parameter<double>* p : f.own)
    if (p->name != "mixer.bias") p->fill(0);
  const double* filter = f.mix->operator_bias();
  for (index_t i = 0; i < f.own[0]->count(); ++i) CHECK(filter[i] == 0);
  // A third of the rows, as a smaller image has them: what only the grid's width was told.
  constexpr sequences third{2, 21};
  f.mix->forward(third, f.qkv.data(), f.y.data(), exec);
  for (index_t i = 0; i < third.rows() * shape.channels; ++i) REQUIRE(std::isfinite(f.y[i]));
}
