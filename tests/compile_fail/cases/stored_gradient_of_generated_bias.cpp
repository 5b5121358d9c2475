// SPDX-License-Identifier: Apache-2.0
// expect: dbias of an aft::generated_bias must be an aft::generated_bias_gradient or aft::no_grad
#include "tensors.hpp"

void call() {
  const aft::generated_bias zero{1, [](auto, auto, auto, auto, std::span<float>) noexcept {}};
#if defined(AFT_CONTROL)
  aft::full_backward(aft::cpu{}, q, k, v, zero, dy, dq, dk, dv, aft::no_grad);
#else
  aft::full_backward(aft::cpu{}, q, k, v, zero, dy, dq, dk, dv, aft::dense_bias{dw});
#endif
}
