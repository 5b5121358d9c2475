// SPDX-License-Identifier: Apache-2.0
// expect: the bias is missing: after v comes aft::dense_bias
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full_backward(q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::dense_bias{dw});
#else
  aft::full_backward(q, k, v, dy, dq, dk, dv);
#endif
}
