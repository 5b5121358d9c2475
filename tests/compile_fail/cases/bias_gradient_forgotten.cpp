// SPDX-License-Identifier: Apache-2.0
// expect: aft::full_backward takes ([executor,] q, k, v, bias, dy, dq, dk, dv, dbias [, options])
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full_backward(q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::no_grad);
#else
  aft::full_backward(q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, {.causal = true});
#endif
}
