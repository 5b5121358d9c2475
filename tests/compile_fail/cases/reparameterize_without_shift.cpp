// SPDX-License-Identifier: Apache-2.0
// expect: aft::reparameterize takes ([executor,] r, gain, shift, out)
#include "tensors.hpp"

inline const aft::tensor_view<const float, 1> gain{input, {5}};

void call() {
#if defined(AFT_CONTROL)
  aft::reparameterize(w, gain, gain, dw);
#else
  aft::reparameterize(w, gain, dw);
#endif
}
