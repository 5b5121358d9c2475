// SPDX-License-Identifier: Apache-2.0
// expect: aft needs C++20
// expect: see the error above
// flags: -std=c++17
#include "tensors.hpp"

void call() {
  aft::simple(aft::cpu{}, q, k, v, y);
}
