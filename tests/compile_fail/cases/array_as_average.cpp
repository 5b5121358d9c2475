// SPDX-License-Identifier: Apache-2.0
// expect: this member takes an aft::tensor_view, not a container, pointer or matrix
#include "tensors.hpp"

#include <vector>

inline std::vector<float> numbers(1000);
inline float array[100];

void call() {
#if defined(AFT_CONTROL)
  aft::simple(q, k, v, y, {.average = y});
#else
  aft::simple(q, k, v, y, {.average = array});
#endif
}
