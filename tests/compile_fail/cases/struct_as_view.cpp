// SPDX-License-Identifier: Apache-2.0
// expect: aft::as_view takes Eigen matrices, maps, blocks and tensors, mdspan
#include "tensors.hpp"

struct thing {};

void call() {
#if defined(AFT_CONTROL)
  static_cast<void>(aft::as_view(q));
#else
  static_cast<void>(aft::as_view(thing{}));
#endif
}
