// SPDX-License-Identifier: Apache-2.0
// expect: aft::simple has no bias
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#endif
}
