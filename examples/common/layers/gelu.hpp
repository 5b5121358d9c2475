// SPDX-License-Identifier: Apache-2.0
//
// GELU in its tanh form, written with one exponential:
//     gelu(u) = u sigmoid(2 r (u + 0.044715 u^3)),  r = sqrt(2 / pi)
#pragma once

#include "common/support/simd.hpp"

namespace examples {

template <class Real>
struct gelu_pack {
  pack<Real> value;
  pack<Real> slope;
};

/// Value and derivative together: they share the exponential and the division.
template <class Real>
gelu_pack<Real> gelu(const pack<Real>& u) {
  constexpr Real two_r = Real(1.5957691216057307);
  constexpr Real cubic = Real(0.044715);
  const pack<Real> square = u * u;
  const pack<Real> inner = pack<Real>(two_r) * u * xsimd::fma(pack<Real>(cubic), square, pack<Real>(Real(1)));
  const pack<Real> gate = pack<Real>(Real(1)) / (pack<Real>(Real(1)) + xsimd::exp(-inner));
  const pack<Real> inner_slope = pack<Real>(two_r) * xsimd::fma(pack<Real>(3 * cubic), square, pack<Real>(Real(1)));
  return {u * gate, gate + u * gate * (pack<Real>(Real(1)) - gate) * inner_slope};
}

/// x = gelu(x + bias), row by row.
template <class Real>
void gelu_forward(index_t rows, index_t channels, const Real* pre, const Real* bias, Real* out) {
  for (index_t t = 0; t < rows; ++t)
    for (index_t c = 0; c < channels; c += lanes<Real>)
      store(out + t * channels + c, gelu<Real>(load(pre + t * channels + c) + load(bias + c)).value);
}

/// Recomputes out = gelu(pre + bias), turns d from the gradient of `out` into that of `pre`, and adds its
/// column sums to dbias.
template <class Real>
void gelu_backward(index_t rows, index_t channels, const Real* pre, const Real* bias, Real* out, Real* d, Real* dbias) {
  for (index_t t = 0; t < rows; ++t)
    for (index_t c = 0; c < channels; c += lanes<Real>) {
      const index_t i = t * channels + c;
      const gelu_pack<Real> g = gelu<Real>(load(pre + i) + load(bias + c));
      const pack<Real> dpre = load(d + i) * g.slope;
      store(out + i, g.value);
      store(d + i, dpre);
      store(dbias + c, load(dbias + c) + dpre);
    }
}

}  // namespace examples
