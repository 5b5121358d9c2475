// SPDX-License-Identifier: Apache-2.0
//
// What a stream is for: a character in a fraction of the time that recomputing takes.
#include "support.hpp"

#include "common/byte_lm/writer.hpp"

#include <doctest/doctest.h>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

TEST_CASE("speed: a stream writes 10 times as fast as recomputing at context 256") {
  for (const mixer_kind kind : all_mixers) {
    training_settings s;
    s.shape.mixer = kind;
    model<float> network(s.shape, 1, 1);
    network.initialize(1);
    const decoding_seconds measured = measure_decoding(network);
    const double ratio = measured.recompute / measured.stream;
    MESSAGE(name_of(kind), ": ", measured.stream * 1e6, " us a character, ", ratio, " times as fast");
    CHECK(ratio > 10);
  }
}
