// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

#include "calls.hpp"

void call_from_cuda_file(const float* x, float* y) {
  const aft::tensor_view<const float, 3, aft::device_space> in{x, {1, 1, 1}};
  aft::simple(aft::cuda{}, in, in, in, aft::tensor_view<float, 3, aft::device_space>{y, {1, 1, 1}});
}

void continue_from_cuda_file(const float* x, float* y, void* slot) {
  const aft::stream_view<aft::device_space> st{aft::stream_spec::simple<float>(1, 1), slot, 1};
  aft::reset(aft::cuda{}, st);
  const aft::tensor_view<const float, 3, aft::device_space> in{x, {1, 1, 1}};
  aft::simple(aft::cuda{}, in, in, in, aft::tensor_view<float, 3, aft::device_space>{y, {1, 1, 1}},
              aft::options{.causal = true, .stream = st});
}
