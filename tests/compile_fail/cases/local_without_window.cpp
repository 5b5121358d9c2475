// SPDX-License-Identifier: Apache-2.0
// expect: the window is missing: after the bias comes
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::local(aft::cpu{}, q, k, v, aft::dense_bias{w}, aft::window::strict(2), y);
#else
  aft::local(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#endif
}
