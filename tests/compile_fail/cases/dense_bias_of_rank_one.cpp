// SPDX-License-Identifier: Apache-2.0
// expect: w has rank
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#else
  const aft::tensor_view<const float, 1> row{input, {5}};
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{row}, y);
#endif
}
