// SPDX-License-Identifier: Apache-2.0
// expect: has no member is_causal: it is called causal
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(q, k, v, y, {.causal = true});
#else
  aft::simple(q, k, v, y, {.is_causal = true});
#endif
}
