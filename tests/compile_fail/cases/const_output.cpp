// SPDX-License-Identifier: Apache-2.0
// expect: const output
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#else
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, q);
#endif
}
