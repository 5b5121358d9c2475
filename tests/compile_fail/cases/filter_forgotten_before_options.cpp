// SPDX-License-Identifier: Apache-2.0
// expect: the filter is missing: after v comes a view (H, taps)
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::conv(aft::cpu{}, q, k, v, w, y);
#else
  aft::conv(q, k, v, y, aft::options{.causal = true});
#endif
}
