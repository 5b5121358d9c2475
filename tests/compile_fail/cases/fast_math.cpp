// SPDX-License-Identifier: Apache-2.0
// expect: does not work under -ffast-math
// expect: see the error above
// flags: -ffast-math
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(aft::cpu{}, q, k, v, y);
#endif
}
