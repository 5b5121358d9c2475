// SPDX-License-Identifier: Apache-2.0
// expect: the bias is missing: after v comes aft::dense_bias
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y);
#else
  aft::full(q, k, v, y, {.causal = true});
#endif
}
