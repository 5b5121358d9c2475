// SPDX-License-Identifier: Apache-2.0
// expect: aft::factorized_bias takes two aft::tensor_view
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(q, k, v, aft::factorized_bias{w, w}, y);
#else
  aft::full(q, k, v, aft::factorized_bias{w}, y);
#endif
}
