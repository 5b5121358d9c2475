// SPDX-License-Identifier: Apache-2.0
// expect: const output
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::attention_map(k, aft::dense_bias{w}, aft::tensor_view<float, 4>{output, {2, 5, 5, 4}});
#else
  aft::attention_map(k, aft::dense_bias{w}, aft::tensor_view<const float, 4>{input, {2, 5, 5, 4}});
#endif
}
