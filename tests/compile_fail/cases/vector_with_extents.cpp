// SPDX-License-Identifier: Apache-2.0
// expect: extents go with a pointer: write aft::as_view(x.data(), {B, T, d})
#include "tensors.hpp"

#include <vector>

inline std::vector<float> numbers(1000);

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::as_view(numbers.data(), {2, 5, 4}), k, v, y);
#else
  aft::simple(aft::as_view(numbers, {2, 5, 4}), k, v, y);
#endif
}
