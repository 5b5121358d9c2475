// SPDX-License-Identifier: Apache-2.0
// A million positions in a stream on the emulated device: what has left the window does not drift.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engines/own_engine.hpp"
#include "device_slots.hpp"

namespace {

using aft::index_t;
using aft::test::device_slots;
using aft::test::device_view;

/// Of calls on 10000 positions each of one channel, whose keys rise by `step`, to a million, held to sums in long
/// double that lose nothing.
template <class T>
double largest_drift(index_t reach, double step) {
  constexpr index_t positions = 1'000'000, part = 10'000;
  const aft::stream_spec spec = reach == 0 ? aft::stream_spec::simple<T>(1, 1) : aft::stream_spec::conv<T>(1, 1, reach);
  const device_slots s(spec, 1);
  std::vector<T> k(part), v(part), y(part);
  const T zero = 0;
  const aft::options o{.causal = true, .gate_fn = aft::gate::none, .stream = s.view()};
  const device_view<const T, 2> kv{k.data(), {part, 1}}, vv{v.data(), {part, 1}};
  const device_view<T, 2> yv{y.data(), {part, 1}};
  std::mt19937 random(3);
  long double num = 0, den = 0, unit = 0;
  double worst = 0;
  for (index_t at = 0; at < positions; at += part) {
    for (std::size_t i = 0; i < part; ++i) {
      k[i] = static_cast<T>(step * static_cast<double>(at + static_cast<index_t>(i)));
      v[i] = static_cast<T>(static_cast<int>(random() % 2001) - 900) / T(1000);
    }
    if (reach == 0) {
      aft::simple(aft::cuda{}, kv, kv, vv, yv, o);
    } else {
      aft::conv(aft::cuda{}, kv, kv, vv, device_view<const T, 2>{&zero, {1, reach}, {0, 0}}, yv, o);
    }
    for (std::size_t i = 0; i < part; ++i) {
      const auto key = static_cast<long double>(k[i]);
      const long double factor = std::exp(unit - key);
      num = num * factor + static_cast<long double>(v[i]);
      den = den * factor + 1;
      unit = key;
      worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(y[i]) - num / den)));
    }
  }
  CHECK(s.position(0) == positions);
  return worst;
}

}  // namespace

TEST_CASE("device streams: a million positions do not drift") {
  // Eight units in the last place of max |v|, as for any call. The second rises to 20000, so that bases change.
  CHECK(largest_drift<float>(0, 3e-6) <= 8 * 0x1p-23);
  CHECK(largest_drift<float>(3, 0.02) <= 8 * 0x1p-23);
  CHECK(largest_drift<double>(0, 3e-6) <= 8 * 0x1p-52);
}
