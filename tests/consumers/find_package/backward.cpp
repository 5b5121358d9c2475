// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <cstdio>

#include <aft/aft.hpp>

// Two keys, one query, no gate: a = 1 / (1 + e^(k1 - k0)), y = a v0 + (1-a) v1, dy = 1.
bool backward_is_right() {
  const std::array<double, 2> k{0.25, -0.5}, v{3.0, -1.0}, w{0.125, 0.75};
  const double q = 0, dy = 1;
  std::array<double, 2> dk{}, dv{}, dw{};
  using in = aft::tensor_view<const double, 3>;
  using out = aft::tensor_view<double, 3>;
  const aft::dense_bias bias{aft::tensor_view<const double, 2>{w.data(), {1, 2}}};
  const aft::dense_bias dbias{aft::tensor_view<double, 2>{dw.data(), {1, 2}}};
  aft::full_backward(aft::cpu{}, in{&q, {1, 1, 1}}, in{k.data(), {1, 2, 1}}, in{v.data(), {1, 2, 1}}, bias,
                     in{&dy, {1, 1, 1}}, aft::no_grad, out{dk.data(), {1, 2, 1}}, out{dv.data(), {1, 2, 1}}, dbias,
                     aft::options{.gate_fn = aft::gate::none});
  const double a = 1 / (1 + std::exp(k[1] + w[1] - k[0] - w[0]));
  const double slope = a * (1 - a) * (v[0] - v[1]);
  const bool right = std::abs(dv[0] - a) < 1e-14 && std::abs(dv[1] - (1 - a)) < 1e-14 &&
                     std::abs(dk[0] - slope) < 1e-14 && std::abs(dk[1] + slope) < 1e-14 &&
                     std::abs(dw[0] - slope) < 1e-14 && std::abs(dw[1] + slope) < 1e-14;
  if (!right) std::printf("dv %g %g, dk %g %g, dw %g %g\n", dv[0], dv[1], dk[0], dk[1], dw[0], dw[1]);
  return right;
}
