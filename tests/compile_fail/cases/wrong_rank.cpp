// SPDX-License-Identifier: Apache-2.0
// expect: wrong rank
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#else
  const aft::tensor_view<const float, 4> grid{input, {2, 5, 5, 4}};
  aft::full(aft::cpu{}, grid, k, v, aft::dense_bias{w}, y);
#endif
}
