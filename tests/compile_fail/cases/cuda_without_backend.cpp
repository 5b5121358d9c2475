// SPDX-License-Identifier: Apache-2.0
// expect: no CUDA backend in this file
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  using input_view = aft::tensor_view<const float, 3, aft::device_space>;
  const input_view x{input, {2, 5, 4}};
  aft::simple(aft::cuda{}, x, x, x, aft::tensor_view<float, 3, aft::device_space>{output, {2, 5, 4}});
#endif
}
