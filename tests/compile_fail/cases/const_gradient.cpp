// SPDX-License-Identifier: Apache-2.0
// expect: const output
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple_backward(aft::cpu{}, q, k, v, dy, dq, aft::no_grad, dv);
#else
  aft::simple_backward(aft::cpu{}, q, k, v, dy, dq, aft::no_grad, v);
#endif
}
