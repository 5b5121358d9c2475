// SPDX-License-Identifier: Apache-2.0
#include "support/examples/finite_difference.hpp"

#include "common/byte_lm/model.hpp"

#include <vector>

using namespace examples;
using namespace examples::byte_lm;
using namespace examples::test;

namespace {

constexpr sequences s{2, 70};
constexpr model_shape shape{.context = 70, .channels = 32, .layers = 2, .heads = 4, .window = 8};

std::vector<std::uint8_t> random_text(std::uint64_t stream) {
  std::vector<std::uint8_t> bytes;
  random_stream random(11, stream);
  for (index_t i = 0; i < s.rows(); ++i) bytes.push_back(static_cast<std::uint8_t>(97 + random.below(26)));
  return bytes;
}

model_shape shape_with(mixer_kind kind) {
  model_shape result = shape;
  result.mixer = kind;
  return result;
}

template <class Real>
class random_model : public model<Real> {
 public:
  explicit random_model(mixer_kind kind, int threads = 2) : model<Real>(shape_with(kind), s.batch, threads) {
    this->initialize(5);
    // Away from the start, where half of the matrices are 0 and half of the gradients with them.
    std::uint64_t stream = 0;
    for (parameter<Real>* p : this->parameters()) {
      random_stream random(9, ++stream);
      for (Real& x : p->value) x += static_cast<Real>(0.2 * random.normal());
    }
  }
};

}  // namespace

TEST_CASE("model: gradient of every parameter, for every mixer") {
  const std::vector<std::uint8_t> text = random_text(1);
  const std::vector<std::uint8_t> next = random_text(2);
  for (const mixer_kind kind : all_mixers) {
    random_model<double> m(kind);
    const auto value = [&] { return m.loss(s, text.data(), next.data()) / static_cast<double>(s.rows()); };
    CHECK(m.loss_and_gradient(s, text.data(), next.data()) / static_cast<double>(s.rows()) ==
          doctest::Approx(value()).epsilon(1e-12));
    for (parameter<double>* p : m.parameters())
      check_gradient(std::string(name_of(kind)) + " " + p->name, p->value.data(), p->grad.data(), p->count(), value,
                     p->kind == role::vector ? 3 : 6);
  }
}

TEST_CASE("model: a later byte changes no earlier logit") {
  const std::vector<std::uint8_t> text = random_text(3);
  for (const mixer_kind kind : all_mixers) {
    random_model<float> m(kind);
    std::vector<float> before(vocabulary);
    std::vector<float> after(vocabulary);
    for (const index_t t : {0, 31, 63, 64, 68}) {
      INFO(name_of(kind), " ", t);
      m.logits(s.time, text.data(), t, before.data());
      std::vector<std::uint8_t> changed = text;
      for (index_t i = t + 1; i < s.time; ++i) changed[static_cast<std::size_t>(i)] ^= 5;
      m.logits(s.time, changed.data(), t, after.data());
      CHECK(before == after);
      // And the byte itself does change them.
      changed[static_cast<std::size_t>(t)] ^= 5;
      m.logits(s.time, changed.data(), t, after.data());
      CHECK(before != after);
    }
  }
}

TEST_CASE("model: the same loss and gradient, bit for bit, for any number of threads") {
  const std::vector<std::uint8_t> text = random_text(4);
  const std::vector<std::uint8_t> next = random_text(5);
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    random_model<float> one(kind, 1);
    random_model<float> three(kind, 3);
    CHECK(one.loss_and_gradient(s, text.data(), next.data()) == three.loss_and_gradient(s, text.data(), next.data()));
    for (std::size_t i = 0; i < one.parameters().size(); ++i) {
      const parameter<float>& a = *one.parameters()[i];
      const parameter<float>& b = *three.parameters()[i];
      INFO(a.name);
      CHECK(std::equal(a.grad.begin(), a.grad.end(), b.grad.begin()));
    }
  }
}

TEST_CASE("model: the same start for every mixer, up to the mixer's own parameters") {
  model<float> a(shape_with(mixer_kind::local), 1, 1);
  model<float> b(shape_with(mixer_kind::attention), 1, 1);
  a.initialize(3);
  b.initialize(3);
  for (const parameter<float>* p : a.parameters())
    for (const parameter<float>* other : b.parameters())
      if (p->name == other->name) {
        INFO(p->name);
        CHECK(std::equal(p->value.begin(), p->value.end(), other->value.begin()));
      }
  CHECK(a.parameter_count() == b.parameter_count() + shape.layers * shape.context * shape.window);
}
