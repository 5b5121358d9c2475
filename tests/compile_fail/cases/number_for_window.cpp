// SPDX-License-Identifier: Apache-2.0
// expect: a number where a window belongs: write aft::window::strict(s)
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::local(aft::cpu{}, q, k, v, aft::dense_bias{w}, aft::window::strict(2), y);
#else
  aft::local(aft::cpu{}, q, k, v, aft::dense_bias{w}, 3, y);
#endif
}
