// SPDX-License-Identifier: Apache-2.0
/// @file product_inputs.hpp  What the tests of the matrix products share: data, and the derived bound.
#pragma once

#include <aft/cuda/split_mma/forward.cuh>

#include <random>
#include <vector>

namespace aft::test {

using namespace aft::cuda_impl;

/// k (B, Tk, d), v the same, w (Tq, Tk).
struct inputs {
  index_t B = 2, Tq = 70, Tk = 100, d = 20;
  bool causal = false;
  std::vector<float> k, v, w;

  static inputs random(unsigned seed, float k_scale, float w_scale, float v_scale = 1) {
    inputs x;
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (index_t i = 0; i < x.B * x.Tk * x.d; ++i) x.k.push_back(k_scale * normal(engine));
    for (index_t i = 0; i < x.B * x.Tk * x.d; ++i) x.v.push_back(v_scale * normal(engine));
    for (index_t i = 0; i < x.Tq * x.Tk; ++i) x.w.push_back(w_scale * normal(engine));
    return x;
  }
  float& key(index_t b, index_t s, index_t c) { return k[static_cast<std::size_t>((b * Tk + s) * d + c)]; }
  float& bias(index_t t, index_t s) { return w[static_cast<std::size_t>(t * Tk + s)]; }
};

/// A tensor (B, T, d) over a test's own numbers.
inline tensor sequence_of(const inputs& x, std::vector<float>& data, index_t T) {
  return scratch_tensor(data.data(), grid{1, 1, T}, x.d);
}

/// AFT-full with a dense bias on `x`, which it points into; results are the test's to add.
inline device_call<float> dense_call(inputs& x) {
  device_call<float> call;
  call.B = x.B;
  call.Tq = x.Tq;
  call.Tk = x.Tk;
  call.d = call.hk = call.state_channels = x.d;
  call.positions = {1, 1, x.Tq};
  call.causal = x.causal;
  call.k = sequence_of(x, x.k, x.Tk);
  call.v = sequence_of(x, x.v, x.Tk);
  call.bias.kind = aft::bias_kind::dense;
  call.bias.w = {reinterpret_cast<std::byte*>(x.w.data()), aft::dtype::f32, true, 0, 0, x.Tk, 1};
  return call;
}

/// What docs/cuda.md derives, in the same units.
inline long double bound(const inputs& x) {
  return 134 + static_cast<long double>(x.Tk) / 16;
}

}  // namespace aft::test
