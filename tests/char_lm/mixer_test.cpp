// SPDX-License-Identifier: Apache-2.0
#include "support/examples/finite_difference.hpp"

#include "common/mixers/mixer.hpp"

#include <iterator>
#include <limits>
#include <memory>

using namespace examples;
using namespace examples::test;

namespace {

// Two blocks of attention and a short third; heads narrower than a vector.
constexpr sequences whole{2, 150};
constexpr mixer_shape shape{.channels = 48, .heads = 6, .context = 150, .max_batch = 2, .window = 9, .tied_keys = true};
const aft::cpu exec{.threads = 2};

/// Each mixer, and those whose bias can be two factors with that, too.
struct tried {
  mixer_kind kind;
  index_t bias_rank = 0;
  mixer_shape sizes() const {
    mixer_shape result = shape;
    result.bias_rank = bias_rank;
    return result;
  }
};
constexpr tried every_mixer[] = {{mixer_kind::local},  {mixer_kind::conv},   {mixer_kind::attention},
                                 {mixer_kind::full},   {mixer_kind::simple}, {mixer_kind::local, 5},
                                 {mixer_kind::full, 5}};
static_assert(std::size(every_mixer) == std::size(all_mixers) + 2);

struct fixture {
  explicit fixture(const tried& one) : fixture(one.kind, one.sizes()) {}
  explicit fixture(mixer_kind kind, mixer_shape sizes = shape)
      : mix(make_mixer<double>(kind, "mixer", sizes)),
        qkv(whole.rows() * mix->input_width()),
        y(whole.rows() * sizes.channels),
        dy(whole.rows() * sizes.channels),
        dqkv(whole.rows() * mix->input_width()) {
    fill_normal(qkv, 1);
    fill_normal(dy, 2);
    std::uint64_t stream = 3;
    for (parameter<double>* bias : mix->bias_parameters()) fill_normal(bias->value, stream++);
  }
  double value(sequences s = whole) {
    mix->forward(s, qkv.data(), y.data(), exec);
    double sum = 0;
    for (index_t i = 0; i < s.rows() * shape.channels; ++i) sum += y[i] * dy[i];
    return sum;
  }

  std::unique_ptr<mixer<double>> mix;
  buffer<double> qkv;
  buffer<double> y;
  buffer<double> dy;
  buffer<double> dqkv;
};

void check_gradients(fixture& f, sequences s) {
  const auto value = [&] { return f.value(s); };
  value();
  f.mix->backward(s, f.qkv.data(), f.y.data(), f.dy.data(), f.dqkv.data(), exec);
  check_gradient("qkv", f.qkv.data(), f.dqkv.data(), s.rows() * f.mix->input_width(), value, 150);
  for (parameter<double>* bias : f.mix->bias_parameters())
    check_gradient(bias->name.c_str(), bias->value.data(), bias->grad.data(), bias->count(), value, 80);
}

}  // namespace

TEST_CASE("mixers: gradient of q, k, v and of the position bias") {
  for (const tried& one : every_mixer) {
    INFO(name_of(one.kind), " ", one.bias_rank);
    fixture f(one);
    check_gradients(f, whole);
  }
}

TEST_CASE("mixers: gradients of a sequence shorter than the context") {
  for (const tried& one : every_mixer) {
    INFO(name_of(one.kind), " ", one.bias_rank);
    fixture f(one);
    check_gradients(f, {2, 70});
  }
}

TEST_CASE("conv mixer: gradients with a key for every channel") {
  mixer_shape untied = shape;
  untied.tied_keys = false;
  fixture f(mixer_kind::conv, untied);
  CHECK(f.mix->input_width() == 3 * shape.channels);
  check_gradients(f, whole);
}

TEST_CASE("mixers: causal, a later row changes no earlier one") {
  for (const tried& one : every_mixer) {
    for (const index_t changed : {1, 64, 100, 149}) {
      INFO(name_of(one.kind), " ", one.bias_rank, " ", changed);
      fixture f(one);
      f.value();
      buffer<double> before(f.y.size());
      std::copy(f.y.begin(), f.y.end(), before.begin());
      const index_t width = f.mix->input_width();
      for (index_t i = changed * width; i < whole.time * width; ++i) f.qkv[i] = 1e3 * (f.qkv[i] - 0.3);
      f.value();
      // Bit for bit, before the change and in the other sequence.
      CHECK(std::equal(before.begin(), before.begin() + changed * shape.channels, f.y.begin()));
      CHECK(std::equal(before.begin() + whole.time * shape.channels, before.end(),
                       f.y.begin() + whole.time * shape.channels));
      CHECK_FALSE(std::equal(before.begin(), before.end(), f.y.begin()));
    }
  }
}

TEST_CASE("mixers: the same bits for any number of threads") {
  for (const tried& one : every_mixer) {
    INFO(name_of(one.kind), " ", one.bias_rank);
    fixture f(one);
    f.value();
    f.mix->backward(whole, f.qkv.data(), f.y.data(), f.dy.data(), f.dqkv.data(), exec);
    for (const int threads : {1, 3}) {
      fixture g(one);
      g.mix->forward(whole, g.qkv.data(), g.y.data(), aft::cpu{.threads = threads});
      g.mix->backward(whole, g.qkv.data(), g.y.data(), g.dy.data(), g.dqkv.data(), aft::cpu{.threads = threads});
      CHECK(std::equal(f.y.begin(), f.y.end(), g.y.begin()));
      CHECK(std::equal(f.dqkv.begin(), f.dqkv.end(), g.dqkv.begin()));
    }
  }
}

TEST_CASE("attention: the textbook formula") {
  fixture f(mixer_kind::attention);
  f.value();
  const index_t width = shape.channels / shape.heads;
  const index_t stride = f.mix->input_width();
  double worst = 0;
  for (index_t b = 0; b < whole.batch; ++b)
    for (index_t h = 0; h < shape.heads; ++h)
      for (index_t t = 0; t < whole.time; ++t) {
        const auto at = [&](index_t row, index_t part, index_t c) {
          return static_cast<long double>(
              f.qkv[(b * whole.time + row) * stride + part * shape.channels + h * width + c]);
        };
        std::vector<long double> sum(static_cast<std::size_t>(width));
        long double total = 0;
        for (index_t s = 0; s <= t; ++s) {
          long double logit = 0;
          for (index_t c = 0; c < width; ++c) logit += at(t, 0, c) * at(s, 1, c);
          const long double weight = std::exp(logit / std::sqrt(static_cast<long double>(width)));
          total += weight;
          for (index_t c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += weight * at(s, 2, c);
        }
        for (index_t c = 0; c < width; ++c) {
          const double y = f.y[(b * whole.time + t) * shape.channels + h * width + c];
          worst = std::max(worst, std::abs(y - static_cast<double>(sum[static_cast<std::size_t>(c)] / total)));
        }
      }
  // An average of values below 5 in size: 150 roundings of the sums, each half a unit.
  CHECK(worst < 150 * 5 * std::numeric_limits<double>::epsilon());
}
