// SPDX-License-Identifier: Apache-2.0
// expect: aft reports wrong arguments by exceptions
// expect: see the error above
// flags: -fno-exceptions
#include "tensors.hpp"

void call() {
  aft::simple(aft::cpu{}, q, k, v, y);
}
