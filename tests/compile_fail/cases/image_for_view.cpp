// SPDX-License-Identifier: Apache-2.0
// expect: this argument must be an aft::tensor_view; make one from a pointer
#include "image.hpp"
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(mat, mat, mat, y);
#endif
}
