// SPDX-License-Identifier: Apache-2.0
// expect: aft::banded_bias takes one aft::tensor_view
#include "tensors.hpp"

#include <vector>

inline std::vector<float> numbers(1000);
inline float array[100];

void call() {
#if defined(AFT_CONTROL)
  aft::local(q, k, v, aft::banded_bias{w}, aft::window::strict(3), y);
#else
  aft::local(q, k, v, aft::banded_bias{numbers}, aft::window::strict(3), y);
#endif
}
