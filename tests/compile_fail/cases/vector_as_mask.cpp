// SPDX-License-Identifier: Apache-2.0
// expect: this member takes an aft::tensor_view, not a container, pointer or matrix
#include "tensors.hpp"

#include <vector>

inline const std::vector<unsigned char> flags(5);

void call() {
#if defined(AFT_CONTROL)
  aft::simple(q, k, v, y, {.mask = aft::tensor_view<const unsigned char, 1>{flags.data(), {5}}});
#else
  aft::simple(q, k, v, y, {.mask = flags});
#endif
}
