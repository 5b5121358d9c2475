// SPDX-License-Identifier: Apache-2.0
// A million positions in a stream: sums of what has left the window do not drift.
#include <cmath>
#include <memory>
#include <random>

#include "engines/own_engine.hpp"
#include "expect_error.hpp"

using aft::index_t;

namespace {

/// The averages of a million positions of one channel, a thousand of them compared with a compensated sum.
template <class T>
void check_drift(const aft::stream_spec& spec, index_t reach, double bound) {
#if defined(AFT_TEST_WATCHED)  // sanitizers look at addresses, other trees at numbers
  constexpr index_t positions = 50'000, part = 5000;
#else
  constexpr index_t positions = 1'000'000, part = 5000;
#endif
  std::vector<T> k(part), v(part), y(part);
  std::vector<std::byte> memory(static_cast<std::size_t>(spec.bytes() + 64));
  void* first = memory.data();
  std::size_t room = memory.size();
  const aft::stream_view st{spec, std::align(64, static_cast<std::size_t>(spec.bytes()), first, room), 1};
  aft::reset(aft::cpu{}, st);
  const T zero = 0;
  const aft::options o{.causal = true, .gate_fn = aft::gate::none, .stream = st};
  const aft::tensor_view<const T, 2> kv{k.data(), {part, 1}}, vv{v.data(), {part, 1}};
  const aft::tensor_view<T, 2> yv{y.data(), {part, 1}};
  std::mt19937 random(3);
  // Neumaier's sums in long double, relative to the last key, which is the largest.
  constexpr double step = 3e-6;
  long double num = 0, den = 0, lost_num = 0, lost_den = 0;
  const auto add = [](long double& sum, long double& lost, long double x) {
    const long double next = sum + x;
    lost += std::abs(sum) >= std::abs(x) ? (sum - next) + x : (x - next) + sum;
    sum = next;
  };
  double worst = 0;
  for (index_t at = 0; at < positions; at += part) {
    for (index_t i = 0; i < part; ++i) {
      k[static_cast<std::size_t>(i)] = static_cast<T>(step * static_cast<double>(at + i));
      v[static_cast<std::size_t>(i)] = static_cast<T>(static_cast<int>(random() % 2001) - 900) / T(1000);
    }
    if (reach == 0) {
      aft::simple(kv, kv, vv, yv, o);
    } else {
      aft::conv(kv, kv, vv, aft::tensor_view<const T, 2>{&zero, {1, reach}, {0, 0}}, yv, o);
    }
    for (index_t i = 0; i < part; ++i) {
      const auto u = static_cast<std::size_t>(i);
      const long double a = std::exp(static_cast<long double>(k[u]));
      add(num, lost_num, a * static_cast<long double>(v[u]));
      add(den, lost_den, a);
      const auto error =
          static_cast<double>(std::abs(static_cast<long double>(y[u]) - (num + lost_num) / (den + lost_den)));
      worst = std::max(worst, error);
    }
  }
  CAPTURE(worst);
  CHECK(worst <= bound);
}

}  // namespace

TEST_CASE("streams: a million positions of slowly rising keys do not drift") {
  // Eight units in the last place of max |v|, as for any call.
  check_drift<float>(aft::stream_spec::simple<float>(1, 1), 0, 8 * 0x1p-23);
  check_drift<double>(aft::stream_spec::simple<double>(1, 1), 0, 8 * 0x1p-52);
  check_drift<float>(aft::stream_spec::conv<float>(1, 1, 3), 3, 8 * 0x1p-23);
}
