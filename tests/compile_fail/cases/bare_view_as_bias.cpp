// SPDX-License-Identifier: Apache-2.0
// expect: bias must be an aft::dense_bias
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#else
  aft::full(aft::cpu{}, q, k, v, w, y);
#endif
}
