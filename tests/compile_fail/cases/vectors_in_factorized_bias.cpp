// SPDX-License-Identifier: Apache-2.0
// expect: aft::factorized_bias takes two aft::tensor_view
#include "tensors.hpp"

#include <vector>

inline std::vector<float> numbers(1000);
inline float array[100];

void call() {
#if defined(AFT_CONTROL)
  aft::full(q, k, v, aft::factorized_bias{w, w}, y);
#else
  aft::full(q, k, v, aft::factorized_bias{numbers, numbers}, y);
#endif
}
