// SPDX-License-Identifier: Apache-2.0
// expect: aft::simple_backward takes ([executor,] q, k, v, dy, dq, dk, dv [, options]); a gradient that is not wanted
// is aft::no_grad
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple_backward(q, k, v, dy, dq, aft::no_grad, aft::no_grad);
#else
  aft::simple_backward(q, k, v, dy, dq);
#endif
}
