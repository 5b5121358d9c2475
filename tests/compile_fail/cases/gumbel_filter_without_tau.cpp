// SPDX-License-Identifier: Apache-2.0
// expect: aft::gumbel_filter takes ([executor,] r, noise, tau, out)
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::gumbel_filter(w, w, 1, dw);
#else
  aft::gumbel_filter(w, w, dw);
#endif
}
