// SPDX-License-Identifier: Apache-2.0
// expect: this argument must be an aft::tensor_view; make one from a pointer
#include "tensors.hpp"

#include <vector>

inline std::vector<float> numbers(1000);
inline float array[100];

void call() {
#if defined(AFT_CONTROL)
  aft::simple(aft::cpu{}, q, k, v, y);
#else
  aft::simple(numbers, numbers, numbers, numbers);
#endif
}
