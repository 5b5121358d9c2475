// SPDX-License-Identifier: Apache-2.0
// expect: nor under parts of it that drop NaN or reorder sums
// expect: see the error above
// flags: -ffinite-math-only
#include "tensors.hpp"

void call() {
  aft::simple(aft::cpu{}, q, k, v, y);
}
