// SPDX-License-Identifier: Apache-2.0
/// @file kernels.cuh  All of the CUDA backend, for nvcc.
#pragma once

#include "backward.cuh"
#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

template <class C>
void run_forward(const problem& p, void* stream) {
  const char* const op = name_of_call(p, false);
  const device_guard guard(stream, op);
  forward<C>(p, call_stream(op, stream));
}

template <class C>
void run_backward(const backward_problem& p, void* stream) {
  const char* const op = name_of_call(p, true);
  const device_guard guard(stream, op);
  backward<C>(p, call_stream(op, stream));
}

}  // namespace aft::inline AFT_ISA::cuda_impl

/// In one .cu file of a program: what its other files link against.
#define AFT_CUDA_INSTANTIATE(C)                                                                               \
  template <>                                                                                                 \
  void aft::add_with_aft_add_cuda_instantiations<C>::forward(const aft::problem& p, void* stream) {           \
    aft::cuda_impl::run_forward<C>(p, stream);                                                                \
  }                                                                                                           \
  template <>                                                                                                 \
  void aft::add_with_aft_add_cuda_instantiations<C>::backward(const aft::backward_problem& p, void* stream) { \
    aft::cuda_impl::run_backward<C>(p, stream);                                                               \
  }                                                                                                           \
  static_assert(true)
