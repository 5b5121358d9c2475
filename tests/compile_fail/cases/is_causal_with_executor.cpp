// SPDX-License-Identifier: Apache-2.0
// expect: has no member is_causal: it is called causal
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y, {.causal = true, .lse = y});
#else
  aft::full(aft::cpu{}, q, k, v, aft::dense_bias{w}, y, {.is_causal = true, .lse = y});
#endif
}
