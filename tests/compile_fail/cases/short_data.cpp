// SPDX-License-Identifier: Apache-2.0
// expect: the element type must be float, double, aft::half or aft::bfloat16
#include "tensors.hpp"

// Two bytes are not half a float: an integer type stays what it is.
void call(const short* in, short* out) {
#if defined(AFT_CONTROL)
  const auto* const from = reinterpret_cast<const aft::half*>(in);
  auto* const to = reinterpret_cast<aft::half*>(out);
#else
  const auto* const from = in;
  auto* const to = out;
#endif
  const auto q16 = aft::as_view(from, {2, 5, 4});
  aft::simple(q16, q16, q16, aft::as_view(to, {2, 5, 4}));
}
