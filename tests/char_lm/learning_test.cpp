// SPDX-License-Identifier: Apache-2.0
//
// A model that is wrong anywhere learns the frequencies of pairs of bytes at best.
#include "support.hpp"

#include <doctest/doctest.h>

#include <chrono>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

namespace {

void check_learns(mixer_kind mixer, double bias_scale) {
  const outcome bible = run_command("bible 'Gen1:1-Rev22:21'");
  REQUIRE_MESSAGE(bible.status == 0, "nothing to learn from: scripts/deps installs the program `bible`");
  const text data({bible.output.begin(), bible.output.end()});
  const double order1 = entropy(data.bytes(), 1);
  CHECK(order1 == doctest::Approx(3.38).epsilon(0.002));

  training_settings s;
  s.shape = {.mixer = mixer, .context = 128, .channels = 96, .layers = 2, .heads = mixer == mixer_kind::conv ? 16 : 6};
  s.batch = 8;
  s.steps = 400;
  s.bias_scale = bias_scale;
  training run(s, data, 2);
  const auto start = std::chrono::steady_clock::now();
  while (!run.finished() && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) run.step();
  const double bits = run.held_out_bits();
  MESSAGE(name_of(mixer), ": ", run.steps_done(), " steps at ", run.step_milliseconds(), " ms, ", bits,
          " bits held out; order-1 entropy ", order1);
  CHECK(bits < order1);
}

}  // namespace

TEST_CASE("learning: AFT-local falls below the order-1 entropy in 20 seconds") {
  check_learns(mixer_kind::local, 30);
}
TEST_CASE("learning: AFT-conv falls below the order-1 entropy in 20 seconds") {
  check_learns(mixer_kind::conv, 10);
}
TEST_CASE("learning: attention falls below the order-1 entropy in 20 seconds") {
  check_learns(mixer_kind::attention, 1);
}
