// SPDX-License-Identifier: Apache-2.0
// expect: the executor is the first argument and the options are the last
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(q, k, v, y, aft::cpu{});
#endif
}
