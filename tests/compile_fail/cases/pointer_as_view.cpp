// SPDX-License-Identifier: Apache-2.0
// expect: a container, array or pointer has no shape
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::as_view(input, {2, 5, 4}), k, v, y);
#else
  aft::simple(aft::as_view(input), k, v, y);
#endif
}
