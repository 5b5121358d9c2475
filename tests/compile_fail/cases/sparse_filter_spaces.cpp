// SPDX-License-Identifier: Apache-2.0
// expect: aft::sparse_filter: taps and values must be views of one space, that of q, k and v
#include "tensors.hpp"

inline const aft::tensor_view<const float, 2> values{input, {1, 0}};

void call() {
#if defined(AFT_CONTROL)
  aft::conv(q, k, v, aft::sparse_filter{aft::tensor_view<const std::int32_t, 2>{nullptr, {1, 0}}, values}, y);
#else
  aft::conv(q, k, v,
            aft::sparse_filter{aft::tensor_view<const std::int32_t, 2, aft::device_space>{nullptr, {1, 0}}, values}, y);
#endif
}
