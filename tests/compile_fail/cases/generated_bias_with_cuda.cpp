// SPDX-License-Identifier: Apache-2.0
// expect: aft::cuda: an aft::generated_bias is made by a function of the host
#include "tensors.hpp"

void call() {
  const aft::generated_bias zero{
      1, [](aft::index_t, aft::index_t, aft::index_t, aft::index_t, std::span<float> row) noexcept { row[0] = 0; }};
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, zero, y);
#else
  const aft::tensor_view<const float, 3, aft::device_space> x{input, {2, 5, 4}};
  aft::full(aft::cuda{}, x, x, x, zero, aft::tensor_view<float, 3, aft::device_space>{output, {2, 5, 4}});
#endif
}
