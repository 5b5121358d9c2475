// SPDX-License-Identifier: Apache-2.0
//
// What a stream is for: a character in a fraction of the time that recomputing takes.
#include "support.hpp"

#include "char_lm/training/writer.hpp"

#include <doctest/doctest.h>

#include <chrono>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

TEST_CASE("speed: a stream writes 10 times as fast as recomputing at context 256") {
  using clock = std::chrono::steady_clock;
  for (const mixer_kind kind : all_mixers) {
    training_settings s;
    s.shape.mixer = kind;
    model<float> network(s.shape, 1, 1);
    network.initialize(1);
    writer<float> fast(network, "In the beginning ", {.temperature = 0.8});
    // The shortest on both sides: tests beside this one take time from either.
    double shortest = 1;
    for (int i = 0; i < 256; ++i) {
      const auto start = clock::now();
      fast.next();
      shortest = std::min(shortest, std::chrono::duration<double>(clock::now() - start).count());
    }
    const double ratio = recomputing_seconds(network) / shortest;
    MESSAGE(name_of(kind), ": ", shortest * 1e6, " us a character, ", ratio, " times as fast");
    CHECK(ratio > 10);
  }
}
