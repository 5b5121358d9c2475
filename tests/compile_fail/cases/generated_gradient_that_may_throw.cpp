// SPDX-License-Identifier: Apache-2.0
// expect: aft::generated_bias_gradient: f must be noexcept
#include "tensors.hpp"

void call() {
  const aft::generated_bias zero{1, [](auto, auto, auto, auto, std::span<float>) noexcept {}};
#if defined(AFT_CONTROL)
  const auto take = [](auto, auto, auto, auto, auto, std::span<const float>) noexcept {};
#else
  const auto take = [](auto, auto, auto, auto, auto, std::span<const float>) {};
#endif
  aft::full_backward(aft::cpu{}, q, k, v, zero, dy, dq, dk, dv, aft::generated_bias_gradient{take, 4});
}
