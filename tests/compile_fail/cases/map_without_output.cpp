// SPDX-License-Identifier: Apache-2.0
// expect: aft::attention_map takes ([executor,] k, bias or filter, [window,] out [, options])
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::attention_map(k, aft::dense_bias{w}, aft::tensor_view<float, 4>{output, {2, 5, 5, 4}});
#else
  aft::attention_map(k, aft::dense_bias{w});
#endif
}
