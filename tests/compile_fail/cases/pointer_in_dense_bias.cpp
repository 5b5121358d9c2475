// SPDX-License-Identifier: Apache-2.0
// expect: aft::dense_bias takes one aft::tensor_view, not a container, pointer or matrix
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#else
  aft::full(q, k, v, aft::dense_bias{input}, y);
#endif
}
