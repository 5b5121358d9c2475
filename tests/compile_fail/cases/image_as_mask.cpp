// SPDX-License-Identifier: Apache-2.0
// expect: this member takes an aft::tensor_view, not a container, pointer or matrix
#include "image.hpp"
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(q, k, v, y, {});
#else
  aft::simple(q, k, v, y, {.mask = mat});
#endif
}
