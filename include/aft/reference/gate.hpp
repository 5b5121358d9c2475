// SPDX-License-Identifier: Apache-2.0
/// @file gate.hpp  The function of q in AFT Eq. 2 and its derivative, as formulas.
#pragma once

#include <aft/core/problem/options.hpp>

#include <cmath>

namespace aft::reference {

template <class Real>
Real sigmoid(Real q) {
  return Real{1} / (Real{1} + std::exp(-q));
}

/// gate(q); `none` is the constant 1, so that y is the average.
template <class Real>
Real gate_value(gate g, Real q) {
  switch (g) {
    case gate::identity: return q;
    case gate::sigmoid: return sigmoid(q);
    // A comparison with NaN is false, and a NaN gate must show in the result.
    case gate::relu: return q < Real{0} ? Real{0} : q;
    case gate::tanh: return std::tanh(q);
    case gate::silu: return q * sigmoid(q);
    case gate::none: break;
  }
  return Real{1};
}

/// gate'(q). relu'(0) = 0, the convention of every framework.
template <class Real>
Real gate_slope(gate g, Real q) {
  switch (g) {
    case gate::identity: return Real{1};
    case gate::sigmoid: {
      const Real s = sigmoid(q);
      return s * (Real{1} - s);
    }
    case gate::relu: return q <= Real{0} ? Real{0} : (q > Real{0} ? Real{1} : q);
    case gate::tanh: {
      const Real th = std::tanh(q);
      return Real{1} - th * th;
    }
    case gate::silu: {
      const Real s = sigmoid(q);
      return s * (Real{1} + q * (Real{1} - s));
    }
    case gate::none: break;
  }
  return Real{0};
}

}  // namespace aft::reference
