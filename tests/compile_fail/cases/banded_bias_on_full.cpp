// SPDX-License-Identifier: Apache-2.0
// expect: a banded_bias holds a window only
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::local(aft::cpu{}, q, k, v, aft::banded_bias{w}, aft::window::inclusive(2), y);
#else
  aft::full(aft::cpu{}, q, k, v, aft::banded_bias{w}, y);
#endif
}
