// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include <aft/aft.hpp>

namespace {

using in = aft::tensor_view<const float, 3>;
using out = aft::tensor_view<float, 3>;

}  // namespace

std::string call_with_two_threads() {
  // Work enough for a second thread to be started, where there is one.
  constexpr aft::index_t B = 2, T = 2048, d = 64;
  const std::vector<float> k(B * T * d, 0.0F);
  std::vector<float> v(k.size());
  std::vector<float> y(k.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 7);
  const in keys{k.data(), {B, T, d}};
  const out result{y.data(), {B, T, d}};
  const in values{v.data(), {B, T, d}};
  aft::simple(aft::cpu{.threads = 2}, keys, keys, values, result, aft::options{.causal = true});
  // Equal keys and no bias: a running mean, halved by the gate of q = 0.
  for (aft::index_t c = 0; c < d; ++c) {
    double sum = 0;
    for (aft::index_t t = 0; t < T; ++t) {
      sum += static_cast<double>(values(B - 1, t, c));
      const double expected = sum / static_cast<double>(t + 1) / 2;
      if (std::abs(static_cast<double>(result(B - 1, t, c)) - expected) > 1e-4) {
        return "y[" + std::to_string(t) + "," + std::to_string(c) + "] is not the running mean";
      }
    }
  }
  return {};
}

void make_a_wrong_call() {
  const std::vector<float> numbers(60, 1.0F);
  std::vector<float> y(60);
  const in five{numbers.data(), {2, 5, 6}};
  const in four{numbers.data(), {2, 4, 6}};
  aft::simple(five, five, four, out{y.data(), {2, 5, 6}});
}

const char* build_info_of_calls() {
  return aft::build_info();
}
