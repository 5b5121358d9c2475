// SPDX-License-Identifier: Apache-2.0
// expect: aft::conv_backward: dfilter must have the rank of filter, for a sparse one 2 as its values
#include "tensors.hpp"

inline const aft::tensor_view<const std::int32_t, 2> offsets{nullptr, {1, 0}};
inline const aft::sparse_filter filter{offsets, aft::tensor_view<const float, 2>{input, {1, 0}}};

void call() {
#if defined(AFT_CONTROL)
  aft::conv_backward(q, k, v, filter, dy, dq, dk, dv, aft::no_grad);
#else
  aft::conv_backward(q, k, v, filter, dy, dq, dk, dv, aft::tensor_view<float, 3>{output, {1, 1, 0}});
#endif
}
