// SPDX-License-Identifier: Apache-2.0
// expect: is_causal
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::simple(q, k, v, y, aft::options{.causal = true});
#else
  aft::simple(q, k, v, y, aft::options{.is_causal = true});
#endif
}
