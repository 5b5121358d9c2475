// SPDX-License-Identifier: Apache-2.0
// expect: this operator has no window: use aft::local
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::local(aft::cpu{}, q, k, v, aft::dense_bias{w}, aft::window::strict(2), y);
#else
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, aft::window::strict(2), y);
#endif
}
