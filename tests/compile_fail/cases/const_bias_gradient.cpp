// SPDX-License-Identifier: Apache-2.0
// expect: const output
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full_backward(aft::cpu{}, q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::dense_bias{dw});
#else
  aft::full_backward(aft::cpu{}, q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::dense_bias{w});
#endif
}
