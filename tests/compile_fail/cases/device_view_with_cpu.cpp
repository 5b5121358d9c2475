// SPDX-License-Identifier: Apache-2.0
// expect: a device view with aft::cpu
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  const aft::tensor_view<const float, 3, aft::device_space> on_device{input, {2, 5, 4}};
  aft::simple(aft::cpu{}, q, on_device, v, y);
#endif
}
