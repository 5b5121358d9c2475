// SPDX-License-Identifier: Apache-2.0
// expect: must be an aft::tensor_view
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(aft::cpu{}, q, k, input, y);
#endif
}
