// SPDX-License-Identifier: Apache-2.0
// aft::full from slots on the emulated device: rows whose positions are dealt to several blocks.
#include <doctest/doctest.h>

#include "engines/own_engine.hpp"
#include "device_rows.hpp"
#include <device_emulator.hpp>

using namespace aft::test::device_rows;
using aft::index_t;
using aft::test::device_slots;
namespace emulator = aft::emulator;

TEST_CASE("device streams: a row of full has the same bits from one block as from a block for each of its parts") {
  // Positions of three parts. Of three elements each has a block; a single one leaves multiprocessors without work.
  constexpr index_t room = 1300, T = 1160, d = 10;
  const calls c{.d = d, .room = room};
  const aft::stream_spec spec = aft::stream_spec::full<float>(d, hk, room);
  const device_slots many(spec, 3), alone(spec, 1);
  rows x(3, T, d), y(3, T, d);
  index_t at = 0;
  for (const index_t n : {500, 30, 600, 1, 1, 28}) {
    CAPTURE(at);
    x.run(c, kind::factorized, {.causal = true, .stream = many.view()}, 0, 3, at, n);
    const emulator::memory_statistics before = emulator::memory();
    y.run(c, kind::factorized, {.causal = true, .stream = alone.view()}, 0, 1, at, n);
    CHECK(emulator::memory().launches == before.launches + 3);
    CHECK(emulator::memory().allocations == before.allocations + 1);
    CHECK(x.of(0, at, n) == y.of(0, at, n));
    at += n;
    CHECK(alone.position(0) == at);
    CHECK(many.position(2) == at);
  }
  CHECK(alone.bytes(0) == many.bytes(0));
  // The formula in double at rows whose last part has just begun, and at the last one. Each of n terms is off by some
  // units of its size, and so is each addition: together no more than (n + 16) of the mean of |v|.
  for (const index_t t : {index_t{511}, index_t{512}, index_t{1023}, index_t{1024}, T - 1}) {
    for (index_t channel = 0; channel < d; ++channel) {
      double num = 0, den = 0, sizes = 0;
      for (index_t i = 0; i <= t; ++i) {
        double w = x.k[static_cast<std::size_t>(i * hk + channel / (d / hk))];
        for (index_t n = 0; n < rank; ++n)
          w += double{c.u[static_cast<std::size_t>(t * rank + n)]} * c.z[static_cast<std::size_t>(i * rank + n)];
        const double value = x.v[static_cast<std::size_t>(i * d + channel)];
        num += std::exp(w) * value;
        den += std::exp(w);
        sizes += std::exp(w) * std::fabs(value);
      }
      const auto place = static_cast<std::size_t>(t * d + channel);
      const double gate = 1 / (1 + std::exp(-double{x.q[place]}));
      const double bound = static_cast<double>(t + 1 + 16) * 0x1p-24 * sizes / den;
      CAPTURE(t);
      CHECK(std::fabs(double{x.y[place]} - gate * num / den) <= bound);
    }
  }
  // What a single element is asked beyond its rows: padding, positions without room, no slot at all.
  rows z(1, 145, d);
  const std::vector<std::int64_t> lengths{142}, nobody{-1};
  const aft::options padded{.causal = true, .query_lengths = list(lengths), .stream = alone.view()};
  z.run(c, kind::factorized, padded, 0, 1, 0, 145);
  CHECK(!std::isnan(z.of(0, 139, 1)[0]));
  CHECK(all_are(z.of(0, 140, 2), no_number));
  CHECK(all_are(z.of(0, 142, 3), 0));
  CHECK(alone.position(0) == room);
  const std::vector<std::byte> before = alone.bytes(0);
  std::fill(z.y.begin(), z.y.end(), 42.0F);
  const aft::options skipped{.causal = true, .stream = alone.view(), .slot_ids = list(nobody)};
  z.run(c, kind::factorized, skipped, 0, 1, 0, 2);
  CHECK(all_are(z.y, 42));
  CHECK(alone.bytes(0) == before);
}
