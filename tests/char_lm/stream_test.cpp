// SPDX-License-Identifier: Apache-2.0
//
// Rows and bytes that come in parts: the same as all at once, where both are possible, and what happens behind.
#include "support.hpp"

#include "common/byte_lm/writer.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <utility>
#include <vector>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

namespace {

constexpr sequences whole{2, 150};
constexpr mixer_shape shape{.channels = 48, .heads = 6, .context = 150, .max_batch = 2, .window = 9, .tied_keys = true};
const aft::cpu exec{.threads = 2};

mixer_shape with_factors(index_t bias_rank) {
  mixer_shape result = shape;
  result.bias_rank = bias_rank;
  return result;
}

/// Rows of the joint projection, mixed at once and by a stream that gets them in parts.
struct mixed {
  explicit mixed(mixer_kind kind, index_t bias_rank = 0)
      : mix(make_mixer<double>(kind, "mixer", with_factors(bias_rank))),
        stream(mix->make_stream(whole.batch)),
        width(mix->input_width()),
        qkv(whole.rows() * width),
        y(whole.rows() * shape.channels) {
    fill(qkv, 1);
    std::uint64_t stream_of_bias = 3;
    for (parameter<double>* bias : mix->bias_parameters()) fill(bias->value, stream_of_bias++);
    mix->forward(whole, qkv.data(), y.data(), exec);
  }
  static void fill(buffer<double>& x, std::uint64_t stream) {
    random_stream random(17, stream);
    for (double& one : x) one = random.normal();
  }
  /// The next rows of both sequences, from those behind `first`.
  buffer<double> go_on(index_t first, index_t rows) {
    buffer<double> in(whole.batch * rows * width);
    buffer<double> out(whole.batch * rows * shape.channels);
    for (index_t b = 0; b < whole.batch; ++b)
      std::copy_n(qkv.data() + (b * whole.time + first) * width, rows * width, in.data() + b * rows * width);
    stream->forward({whole.batch, rows}, in.data(), out.data(), exec);
    return out;
  }
  /// All rows, so many a call.
  buffer<double> in_parts(index_t part) {
    buffer<double> all(y.size());
    for (index_t first = 0; first < whole.time; first += part) {
      const index_t rows = std::min(part, whole.time - first);
      const buffer<double> out = go_on(first, rows);
      for (index_t b = 0; b < whole.batch; ++b)
        std::copy_n(out.data() + b * rows * shape.channels, rows * shape.channels,
                    all.data() + (b * whole.time + first) * shape.channels);
    }
    return all;
  }

  std::unique_ptr<mixer<double>> mix;
  std::unique_ptr<mixer_stream<double>> stream;
  index_t width;
  buffer<double> qkv;
  buffer<double> y;
};

/// A model away from its start, where half of the matrices are 0.
template <class Real>
class random_model : public model<Real> {
 public:
  explicit random_model(mixer_kind kind, int threads = 1)
      : model<Real>(small_settings(kind).shape, small_settings(kind).batch, threads) {
    this->initialize(5);
    std::uint64_t stream = 0;
    for (parameter<Real>* p : this->parameters()) {
      random_stream random(9, ++stream);
      for (Real& x : p->value) x += static_cast<Real>(0.2 * random.normal());
    }
  }
};

constexpr writing by(decoding how) {
  return {.temperature = 0.8, .seed = 7, .restart = false, .how = how};
}

/// Two writers of one model, byte by byte, the second one by streams.
template <class Real>
void check_same_text(model<Real>& network, const std::string& prompt, index_t count, Real tolerance) {
  writer<Real> slow(network, prompt, by(decoding::recompute));
  writer<Real> fast(network, prompt, by(decoding::stream));
  Real worst = 0;
  for (index_t i = 0; i < count; ++i) {
    slow.next();
    fast.next();
    for (index_t j = 0; j < vocabulary; ++j) worst = std::max(worst, std::abs(slow.logits()[j] - fast.logits()[j]));
  }
  CHECK(slow.text() == fast.text());
  CHECK(worst <= tolerance);
  // Another text would be drawn from other numbers: the comparison is not one of two constants.
  writer<Real> other(network, prompt, {.temperature = 0.8, .seed = 8});
  for (index_t i = 0; i < count; ++i) other.next();
  CHECK(other.text() != fast.text());
}

// Logits of these models stay below 30 in size, and every layer's sums, 32 to 150 terms, round by half a unit each: a
// few hundred units in the last place of the largest number.
template <class Real>
constexpr Real logit_tolerance = 30 * 300 * std::numeric_limits<Real>::epsilon();

}  // namespace

TEST_CASE("mixer streams: rows in parts are the rows at once, for every mixer") {
  std::vector<std::pair<mixer_kind, index_t>> tried{{mixer_kind::local, 5}, {mixer_kind::full, 5}};
  for (const mixer_kind kind : all_mixers) tried.emplace_back(kind, 0);
  for (const auto& [kind, bias_rank] : tried) {
    mixed m(kind, bias_rank);
    const buffer<double> single = m.in_parts(1);
    double worst = 0;
    for (index_t i = 0; i < m.y.size(); ++i) worst = std::max(worst, std::abs(single[i] - m.y[i]));
    INFO(name_of(kind), " ", bias_rank, ": ", worst);
    // Two averages of values below 5 in size, each with 150 roundings of half a unit.
    CHECK(worst < 2 * 150 * 5 * std::numeric_limits<double>::epsilon());
    for (const index_t part : {7, 64, 150}) {
      m.stream->reset();
      const buffer<double> cut = m.in_parts(part);
      INFO("parts of ", part);
      CHECK(std::equal(single.begin(), single.end(), cut.begin()));
    }
  }
}

TEST_CASE("mixer streams: those with a place for each row say where they end, the others go on") {
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    mixed m(kind);
    m.in_parts(150);
    if (m.mix->unlimited())
      CHECK_NOTHROW(m.go_on(0, 1));
    else if (kind == mixer_kind::attention)
      CHECK_THROWS_WITH_AS(m.go_on(0, 1), "attention: a key-value cache of 150 rows has no place for 1 behind row 150",
                           std::length_error);
    else
      CHECK_THROWS_AS(m.go_on(0, 1), aft::shape_error);
    CHECK(m.mix->unlimited() == (kind == mixer_kind::simple || kind == mixer_kind::conv));
  }
}

TEST_CASE("mixer streams: bytes do not grow with the context but for full and attention") {
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    mixer_shape longer = shape;
    longer.context = 2 * shape.context;
    const auto bytes = [&](const mixer_shape& of) {
      return make_mixer<float>(kind, "mixer", of)->make_stream(1)->bytes();
    };
    const bool grows = kind == mixer_kind::full || kind == mixer_kind::attention;
    CHECK(bytes(shape) > 0);
    CHECK((bytes(longer) > bytes(shape)) == grows);
  }
}

TEST_CASE("writer: a stream writes what recomputing writes, for every mixer and beyond the context") {
  // Context 48: the prompt, the end of the context, and two times that those which end there begin again.
  const std::string prompt = "and the earth";
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    random_model<double> exact(kind);
    check_same_text(exact, prompt, 80, logit_tolerance<double>);
    random_model<float> network(kind);
    check_same_text(network, prompt, 80, logit_tolerance<float>);
  }
}

TEST_CASE("writer: prompts of one byte and longer than the context") {
  const std::string text = "the earth was without form and void; and the light was without the earth";
  REQUIRE(text.size() > 48);
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    random_model<double> network(kind);
    check_same_text(network, "a", 20, logit_tolerance<double>);
    check_same_text(network, text, 20, logit_tolerance<double>);
  }
}

TEST_CASE("writer: what is unlimited begins again when asked, and then writes what it would have seen alone") {
  random_model<double> network(mixer_kind::conv);
  writer<double> on(network, "and ", by(decoding::stream));
  writer<double> again(network, "and ", {.temperature = 0.8, .seed = 7, .restart = true});
  for (int i = 0; i < 45; ++i) {
    on.next();
    again.next();
    REQUIRE(std::equal(on.logits().begin(), on.logits().end(), again.logits().begin()));
  }
  const std::string seen = ("and " + again.text()).substr(49 - 24);
  on.next();
  again.next();
  CHECK_FALSE(std::equal(on.logits().begin(), on.logits().end(), again.logits().begin()));
  writer<double> alone(network, seen, by(decoding::stream));
  alone.next();
  CHECK(std::equal(alone.logits().begin(), alone.logits().end(), again.logits().begin()));
}

TEST_CASE("writer: the same bits for any number of threads") {
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    random_model<float> one(kind, 1), three(kind, 3);
    writer<float> a(one, "and ", by(decoding::stream)), b(three, "and ", by(decoding::stream));
    for (int i = 0; i < 60; ++i) {
      a.next();
      b.next();
      REQUIRE(std::equal(a.logits().begin(), a.logits().end(), b.logits().begin()));
    }
  }
}

TEST_CASE("writer: a stream goes on where recomputing has no more room") {
  random_model<float> network(mixer_kind::conv);
  writer<float> slow(network, "and ", by(decoding::recompute)), fast(network, "and ", by(decoding::stream));
  const index_t room = small_settings(mixer_kind::conv).batch * network.shape().context;
  for (index_t i = 0; i < room - 3; ++i) slow.next();
  CHECK_THROWS_AS(slow.next(), std::length_error);
  for (index_t i = 0; i < 5 * room; ++i) fast.next();
  for (const float x : fast.logits()) CHECK(std::isfinite(x));
  CHECK(fast.state_bytes() == writer<float>(network, "and ", by(decoding::stream)).state_bytes());
}
