// SPDX-License-Identifier: Apache-2.0
// What a host refuses of the taps of a sparse filter, and cannot see of those on a device: rows are NaN or a tap reads
// nothing, and no memory beyond the tensors is touched, which the emulated device watches.
#include <doctest/doctest.h>

#include <aft/aft.hpp>
#include <device_emulator.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engines/own_engine.hpp"
#include "harness/harness.hpp"

namespace {

using aft::index_t;
template <class T, std::size_t Rank>
using view = aft::tensor_view<T, Rank, aft::device_space>;

constexpr index_t rows = 70, channels = 4, heads = 2;

/// y and the gradients of one sequence whose two heads have `m` taps each, of int64.
struct device_call {
  index_t m = 1;
  std::vector<std::int64_t> taps{};
  std::vector<float> values{};
  aft::options o{};
  std::vector<float> x{}, y{}, dk{}, dv{}, dvalues{};

  void run() {
    const auto n = static_cast<std::size_t>(rows * channels);
    for (std::size_t i = 0; i < n; ++i) x.push_back(std::sin(0.7f * static_cast<float>(i)));
    y.resize(n), dk.resize(n), dv.resize(n), dvalues.resize(values.size());
    const view<const float, 3> in{x.data(), {1, rows, channels}};
    const auto out = [](std::vector<float>& to) { return view<float, 3>{to.data(), {1, rows, channels}}; };
    const aft::sparse_filter filter{view<const std::int64_t, 2>{taps.data(), {heads, m}},
                                    view<const float, 2>{values.data(), {heads, m}}};
    aft::conv(in, in, in, filter, out(y), o);
    aft::conv_backward(in, in, in, filter, in, aft::no_grad, out(dk), out(dv),
                       view<float, 2>{dvalues.data(), {heads, m}}, o);
  }
  float y_at(index_t t, index_t c) const { return y[static_cast<std::size_t>(t * channels + c)]; }
};

}  // namespace

TEST_CASE("taps on a device: an offset twice in a head makes the rows NaN that read a key through it") {
  for (bool causal : {false, true})
    for (bool excluded : {false, true}) {
      device_call c{.m = 3, .taps = {-5, -1, -5, -5, -1, 0}, .values = {1, 2, 3, 1, 2, 3}};
      c.o.causal = causal;
      c.o.outside = excluded ? aft::outside::excluded : aft::outside::zero_bias;
      c.run();
      for (index_t t = 0; t < rows; ++t)
        for (index_t i = 0; i < channels; ++i) {
          CAPTURE(t);
          CHECK(std::isnan(c.y_at(t, i)) == (i < 2 && t >= 5));
        }
      CHECK(std::isnan(c.dvalues[0]));
      for (std::size_t i : {3u, 4u, 5u}) CHECK(std::isfinite(c.dvalues[i]));
    }
}

TEST_CASE("taps on a device: offsets ahead of causal queries, and those beyond all positions, read nothing") {
  constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  for (bool causal : {false, true})
    for (index_t first : {index_t{0}, index_t{3}, index_t{1} << 61}) {
      device_call c{.m = 4,
                    .taps = {-2, least, most, -rows - 3, -2, least, least, -(index_t{1} << 62)},
                    .values = {1, 2, 3, 4, -1, 2, 3, 4}};
      device_call plain{.m = 1, .taps = {-2, -2}, .values = {1, -1}};
      c.o.causal = plain.o.causal = causal;
      c.o.first_query = plain.o.first_query = first;
      c.run();
      plain.run();
      CHECK(c.y == plain.y);
      CHECK(c.dk == plain.dk);
      CHECK(c.dv == plain.dv);
      CHECK(c.dvalues == std::vector<float>{plain.dvalues[0], 0, 0, 0, plain.dvalues[1], 0, 0, 0});
    }
  device_call ahead{.m = 2, .taps = {-2, 1, 7, -2}, .values = {1, 5, 5, -1}, .o = {.causal = true}};
  device_call plain{.m = 1, .taps = {-2, -2}, .values = {1, -1}, .o = {.causal = true}};
  ahead.run();
  plain.run();
  CHECK(ahead.y == plain.y);
  CHECK(ahead.dv == plain.dv);
  CHECK(ahead.dvalues == std::vector<float>{plain.dvalues[0], 0, 0, plain.dvalues[1]});
}

TEST_CASE("taps on a device: a call takes scratch that grows with the sequence, not with its square") {
  const auto peak = [](index_t T, bool backward) {
    const std::vector<float> x(static_cast<std::size_t>(T), 0.5f), values{1, -1};
    const std::vector<std::int32_t> taps{0, -9};
    std::vector<float> y(x.size()), dvalues(2);
    const view<const float, 3> in{x.data(), {1, T, 1}};
    const view<float, 3> out{y.data(), {1, T, 1}};
    const aft::sparse_filter filter{view<const std::int32_t, 2>{taps.data(), {1, 2}},
                                    view<const float, 2>{values.data(), {1, 2}}};
    aft::emulator::memory().peak = 0;
    if (backward) {
      aft::conv_backward(in, in, in, filter, in, aft::no_grad, aft::no_grad, out,
                         view<float, 2>{dvalues.data(), {1, 2}});
    } else {
      aft::conv(in, in, in, filter, out);
    }
    return aft::emulator::memory().peak;
  };
  for (bool backward : {false, true}) CHECK(peak(4096, backward) < 5 * peak(1024, backward));
}
