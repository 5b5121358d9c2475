// SPDX-License-Identifier: Apache-2.0
//
// A training step of char_lm's model whose sequences are cut over threads: losses and gradients.
//
// Tolerances are those of every other test (tests/support/harness/tolerance.hpp). The oracle is the model in double,
// the obvious evaluation in the same precision the model of one rank, and the size of a tensor's numbers its largest.
#include "char_lm/support.hpp"
#include "common/support/user_error.hpp"

#include <aft/distributed/in_process.hpp>

#include <doctest/doctest.h>

#include "support/harness/tolerance.hpp"

#include <thread>

using namespace examples;
using namespace examples::byte_lm;
using namespace examples::char_lm::test;

namespace {

constexpr mixer_kind cut_mixers[] = {mixer_kind::local, mixer_kind::conv, mixer_kind::simple, mixer_kind::full};
// Of a length that two and three ranks cannot share evenly, and longer than a piece of rows.
constexpr sequences all{2, 301};

model_shape shape_of(mixer_kind kind, index_t bias_rank) {
  return {
      .mixer = kind, .context = all.time, .channels = 32, .layers = 2, .heads = 4, .window = 8, .bias_rank = bias_rank};
}

std::vector<std::uint8_t> random_text(std::uint64_t stream) {
  std::vector<std::uint8_t> bytes;
  random_stream random(12, stream);
  for (index_t i = 0; i < all.rows(); ++i) bytes.push_back(static_cast<std::uint8_t>(97 + random.below(26)));
  return bytes;
}

/// What a step gives: the mean loss, then every parameter's gradient by its name.
struct step {
  std::vector<std::string> names;
  std::vector<std::vector<long double>> values;
  double held_out = 0;
};

template <class Real>
step step_of(const model_shape& shape, const ranks* cut, int threads = 1) {
  model<Real> m(shape, all.batch, threads, cut);
  m.initialize(5);
  // Away from the start, where every block is the identity and most gradients are 0. The same numbers in both
  // precisions.
  std::uint64_t stream = 0;
  for (parameter<Real>* p : m.parameters()) {
    random_stream random(9, ++stream);
    for (Real& x : p->value) x = static_cast<Real>(static_cast<float>(x) + static_cast<float>(0.2 * random.normal()));
  }
  const std::vector<std::uint8_t> text = random_text(1), next = random_text(2);
  step result;
  const double nats = m.loss_and_gradient(all, text.data(), next.data());
  result.names.push_back("loss");
  result.values.push_back({nats / static_cast<double>(all.rows())});
  for (const parameter<Real>* p : m.parameters()) {
    result.names.push_back(p->name);
    result.values.emplace_back(p->grad.begin(), p->grad.end());
  }
  result.held_out = m.loss(all, text.data(), next.data());
  return result;
}

/// The same step on every rank.
std::vector<step> steps_of(const model_shape& shape, int count) {
  const std::vector<aft::in_process> group = aft::in_process::group(count);
  std::vector<step> steps(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      const ranks_over<aft::in_process> own(group[r]);
      steps[r] = step_of<float>(shape, &own);
    });
  for (std::thread& t : threads) t.join();
  return steps;
}

void check_same(const step& a, const step& b) {
  REQUIRE(a.names == b.names);
  for (std::size_t i = 0; i < a.names.size(); ++i) {
    CAPTURE(a.names[i]);
    CHECK(a.values[i] == b.values[i]);
  }
  CHECK(a.held_out == b.held_out);
}

void check_within(const step& got, const step& plain, const step& oracle) {
  for (std::size_t i = 0; i < got.names.size(); ++i) {
    long double largest = 0;
    for (const long double x : oracle.values[i]) largest = std::max(largest, std::abs(x));
    CAPTURE(got.names[i]);
    CHECK(largest > 0);
    const std::vector<long double> no_terms;
    const aft::test::comparison c{.got = &got.values[i],
                                  .oracle = &oracle.values[i],
                                  .naive = &plain.values[i],
                                  .terms = &no_terms,
                                  .scale = std::vector<long double>(oracle.values[i].size(), largest),
                                  .arithmetic = aft::dtype::f32,
                                  .storage = aft::dtype::f32};
    CHECK(aft::test::first_mismatch(c) == "");
  }
}

template <class Check>
void for_every_mixer(const Check& check) {
  for (const mixer_kind kind : cut_mixers)
    for (const index_t bias_rank : {0, 3}) {
      if (bias_rank > 0 && kind != mixer_kind::local && kind != mixer_kind::full) continue;
      CAPTURE(name_of(kind));
      CAPTURE(bias_rank);
      check(shape_of(kind, bias_rank));
    }
}

}  // namespace

TEST_CASE("cut model: one rank has the bits of the plain model") {
  for_every_mixer([](const model_shape& shape) { check_same(steps_of(shape, 1)[0], step_of<float>(shape, nullptr)); });
}

TEST_CASE("cut model: loss and gradients of two and three ranks are as exact as one's, and the same on all") {
  for_every_mixer([](const model_shape& shape) {
    const step plain = step_of<float>(shape, nullptr);
    const step oracle = step_of<double>(shape, nullptr);
    for (const int count : {2, 3}) {
      CAPTURE(count);
      const std::vector<step> steps = steps_of(shape, count);
      check_within(steps[0], plain, oracle);
      for (const step& other : steps) check_same(other, steps[0]);
    }
  });
}

TEST_CASE("cut model: attention, and fewer bytes than ranks, are refused") {
  const ranks_over<aft::in_process> first(aft::in_process::group(2)[0]);
  const char_lm::text data = small_text();
  training_settings s = small_settings(mixer_kind::conv);
  s.shape.context = s.shape.window = 1;
  CHECK_THROWS_WITH_AS(training(s, data, 1, &first), "--context 1: fewer bytes than the 2 ranks", user_error);
  CHECK_THROWS_WITH_AS(training(small_settings(mixer_kind::attention), data, 1, &first),
                       "attention: its sequences cannot be cut over ranks", user_error);
}

TEST_CASE("cut model: what only whole sequences have is refused where they are cut") {
  const ranks_over<aft::in_process> first(aft::in_process::group(2)[0]);
  model<float> m(shape_of(mixer_kind::conv, 0), 1, 1, &first);
  const std::vector<std::uint8_t> text = random_text(1);
  std::vector<float> out(vocabulary);
  CHECK_THROWS_AS(m.logits(4, text.data(), 3, out.data()), std::logic_error);
  CHECK_THROWS_AS(m.make_stream(), std::logic_error);
  CHECK_THROWS_AS(m.loss({1, 4}, text.data(), text.data()), std::logic_error);
}

TEST_CASE("cut model: the same cut gives the same bits") {
  for_every_mixer([](const model_shape& shape) { check_same(steps_of(shape, 3)[1], steps_of(shape, 3)[1]); });
}
