// SPDX-License-Identifier: Apache-2.0
// expect: another library's 16-bit type: pass aft::as_view(view)
#include "tensors.hpp"

namespace theirs {
struct half {
  unsigned short bits;
};
}  // namespace theirs

template <>
struct aft::storage_of<theirs::half> {
  using type = aft::half;
};

void call(const theirs::half* in, theirs::half* out) {
  const aft::tensor_view<const theirs::half, 3> q16{in, {2, 5, 4}};
  const aft::tensor_view<theirs::half, 3> y16{out, {2, 5, 4}};
#if defined(AFT_CONTROL)
  aft::simple(aft::as_view(q16), aft::as_view(q16), aft::as_view(q16), aft::as_view(y16));
#else
  aft::simple(q16, q16, q16, y16);
#endif
}
