// SPDX-License-Identifier: Apache-2.0
// expect: the element type must be
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  const aft::tensor_view<const int, 3> counts{nullptr, {2, 5, 4}};
  const aft::tensor_view<int, 3> sums{nullptr, {2, 5, 4}};
  aft::simple(aft::cpu{}, counts, counts, counts, sums);
#endif
}
