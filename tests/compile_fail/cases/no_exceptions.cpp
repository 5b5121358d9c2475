// SPDX-License-Identifier: Apache-2.0
// expect: aft reports wrong arguments by exceptions
// flags: -fno-exceptions -Wfatal-errors
#include "tensors.hpp"

void call() {
  aft::simple(aft::cpu{}, q, k, v, y);
}
