// SPDX-License-Identifier: Apache-2.0
// expect: a gradient that is not wanted is aft::no_grad
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple_backward(q, k, v, dy, aft::no_grad, dk, dv);
#else
  aft::simple_backward(q, k, v, dy, nullptr, dk, dv);
#endif
}
