// SPDX-License-Identifier: Apache-2.0
// No build system and no OpenMP: a causal convolution over one channel, small enough to write the sum by hand.
#include <cmath>
#include <cstdio>
#include <cstring>

#include <aft/aft.hpp>

static_assert(AFT_VERSION_MAJOR == 0 && AFT_VERSION_MINOR >= 1 && AFT_VERSION_PATCH >= 0);

int main() {
  const double q[4] = {0.5, -1, 2, 0};
  const double k[4] = {0.1, 0.7, -0.4, 1.2};
  const double v[4] = {1, -2, 3, 0.5};
  const double r[2] = {-0.3, 0.9};  // causal: r[1] belongs to the query's own key, r[0] to the one before it
  double y[4] = {};
  using in = aft::tensor_view<const double, 3>;
  aft::conv(aft::cpu{}, in{q, {1, 4, 1}}, in{k, {1, 4, 1}}, in{v, {1, 4, 1}},
            aft::tensor_view<const double, 2>{r, {1, 2}}, aft::tensor_view<double, 3>{y, {1, 4, 1}},
            aft::options{.causal = true, .gate_fn = aft::gate::identity});
  for (int t = 0; t < 4; ++t) {
    double num = 0;
    double den = 0;
    for (int s = 0; s <= t; ++s) {
      const double a = std::exp(k[s] + (s == t ? r[1] : s == t - 1 ? r[0] : 0.0));
      num += a * v[s];
      den += a;
    }
    if (std::abs(y[t] - q[t] * num / den) > 1e-14) return std::printf("t %d: %.17g\n", t, y[t]), 1;
  }
  // Compiled without OpenMP: the program must be able to find that out.
  const char* const info = aft::build_info();
  if (!std::strstr(info, ", no OpenMP (one thread),")) return std::printf("build_info: %s\n", info), 1;
  std::printf("plain include path: ok (%s)\n", info);
  return 0;
}
