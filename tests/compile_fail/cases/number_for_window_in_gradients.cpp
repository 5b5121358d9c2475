// SPDX-License-Identifier: Apache-2.0
// expect: a number where a window belongs: write aft::window::strict(s)
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::local_backward(q, k, v, aft::dense_bias{w}, aft::window::strict(3), dy, dq, dk, dv, aft::dense_bias{dw});
#else
  aft::local_backward(q, k, v, aft::dense_bias{w}, 3, dy, dq, dk, dv, aft::dense_bias{dw});
#endif
}
