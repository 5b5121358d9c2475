// SPDX-License-Identifier: Apache-2.0
// expect: aft::cuda: an aft::generated_bias is made by a function of the host
#include "tensors.hpp"

void call() {
  const aft::generated_bias zero{
      1, [](aft::index_t, aft::index_t, aft::index_t, aft::index_t, std::span<float> row) noexcept { row[0] = 0; }};
  const aft::generated_bias_gradient take{[](auto, auto, auto, auto, auto, std::span<const float>) noexcept {}, 1};
  constexpr auto none = aft::no_grad;
#if defined(AFT_CONTROL)
  aft::full_backward(aft::cpu{}, q, k, v, zero, dy, none, none, none, take);
#else
  const aft::tensor_view<const float, 3, aft::device_space> x{input, {2, 5, 4}};
  aft::full_backward(aft::cuda{}, x, x, x, zero, x, none, none, none, take);
#endif
}
