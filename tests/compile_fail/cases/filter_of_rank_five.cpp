// SPDX-License-Identifier: Apache-2.0
// expect: filter has rank
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::conv(aft::cpu{}, q, k, v, w, y);
#else
  const aft::tensor_view<const float, 5> filter{input, {1, 1, 1, 1, 3}};
  aft::conv(aft::cpu{}, q, k, v, filter, y);
#endif
}
