// SPDX-License-Identifier: Apache-2.0
// What AFT_CUDA_INSTANTIATE(float) would bring, but for calls with slots, packed sequences and filters' functions,
// whose kernels have no instruction that these have not.
#include "operators.hpp"

#include <aft/cuda/launch/backward.cuh>

#include "gemm.cuh"
#include "products.hpp"

namespace aft::test {

void translated_forward(const problem& p) {
  cuda_impl::forward<float>(p, cuda_impl::call_stream("forward", nullptr));
}

void translated_backward(const backward_problem& p) {
  cuda_impl::backward<float>(p, cuda_impl::call_stream("backward", nullptr));
}

bool gemm_right_on_warpgroups() {
  return gemm_right<on_warpgroups>();
}

}  // namespace aft::test
