// SPDX-License-Identifier: Apache-2.0
// expect: a host view with aft::cuda
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(aft::cuda{}, q, k, v, y);
#endif
}
