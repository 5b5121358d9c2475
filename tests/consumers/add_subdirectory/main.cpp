// SPDX-License-Identifier: Apache-2.0
// A running mean: with k = 0 and no bias, causal attention averages what it has seen, which needs no second formula.
#include <cmath>
#include <cstdio>
#include <vector>

#include <aft/aft.hpp>

#if EXPECT_OPENMP && !defined(_OPENMP)
#error "the package did not pass OpenMP on"
#endif

int main() {
  constexpr int T = 50, d = 3;
  std::vector<float> k(T * d, 0.0F), v(T * d), y(T * d), average(T * d), lse(T * d);
  for (int i = 0; i < T * d; ++i) v[static_cast<std::size_t>(i)] = static_cast<float>((i * 37) % 11);
  using in = aft::tensor_view<const float, 2>;
  using out = aft::tensor_view<float, 2>;
  aft::simple(aft::cpu{.threads = 2}, in{k.data(), {T, d}}, in{k.data(), {T, d}}, in{v.data(), {T, d}},
              out{y.data(), {T, d}},
              aft::options{.causal = true,
                           .gate_fn = aft::gate::sigmoid,
                           .lse = aft::tensor_view<float, 3>{lse.data(), {1, T, d}},
                           .average = aft::tensor_view<float, 3>{average.data(), {1, T, d}}});
  for (int c = 0; c < d; ++c) {
    double sum = 0;
    for (int t = 0; t < T; ++t) {
      const auto i = static_cast<std::size_t>(t * d + c);
      sum += static_cast<double>(v[i]);
      const double mean = sum / (t + 1);
      const bool right = std::abs(static_cast<double>(average[i]) - mean) < 1e-5 &&
                         std::abs(static_cast<double>(y[i]) - mean / 2) < 1e-5 &&
                         std::abs(static_cast<double>(lse[i]) - std::log(t + 1)) < 1e-5;
      if (!right) {
        std::printf("t %d c %d: y %g average %g lse %g, mean %g\n", t, c, static_cast<double>(y[i]),
                    static_cast<double>(average[i]), static_cast<double>(lse[i]), mean);
        return 1;
      }
    }
  }
  std::puts("add_subdirectory: ok");
  return 0;
}
