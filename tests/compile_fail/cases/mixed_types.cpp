// SPDX-License-Identifier: Apache-2.0
// expect: mixed element types
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  const aft::tensor_view<const double, 3> wide{nullptr, {2, 5, 4}};
  aft::simple(aft::cpu{}, q, wide, v, y);
#endif
}
