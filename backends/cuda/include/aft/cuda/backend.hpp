// SPDX-License-Identifier: Apache-2.0
/// @file backend.hpp  The CUDA backend's entry, for any compiler.
///
/// nvcc compiles the kernels along with the calls. Any other compiler leaves them to a .cu file of the same program
/// that holds the instantiations: `aft_add_cuda_instantiations(<target> <float|double>...)` in CMake adds one.
#pragma once

#include <aft/core/problem/dispatch.hpp>

namespace aft {

/// Where files that nvcc does not compile find the kernels for arithmetic type C (float serves float, half and
/// bfloat16 data). If the linker misses a member of this class, the program has no instantiations: see
/// aft_add_cuda_instantiations in the documentation of the CUDA backend. Outside every namespace that depends on
/// compiler flags, since caller and kernels are compiled by two compilers.
template <class C>
struct add_with_aft_add_cuda_instantiations {
  static void forward(const problem& p, void* stream);
  static void backward(const backward_problem& p, void* stream);
  static void attention_map(const problem& p, void* stream);
  static void filter(const filter_problem& p, void* stream);
};

/// The same for slots, whose headers are of no type, and for what calls over several ranks move: any instantiations
/// hold it.
template <>
struct add_with_aft_add_cuda_instantiations<void> {
  static void reset(const stream_ref& all_slots, index_t first, index_t last, void* stream);
  static void copy(const stream_ref& all_slots, const length_list& from, const length_list& to, index_t n,
                   void* stream);
  static void read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes, void* stream);
  static void serve(device_request& r, void* stream);
};

inline namespace AFT_ISA {
namespace cuda_impl {

/// The call that a problem came from, for error messages.
inline const char* name_of_call(const problem& p, bool backward) {
  if (p.bias.kind == bias_kind::filter || p.bias.kind == bias_kind::sparse)
    return backward ? "aft::conv_backward" : "aft::conv";
  if (p.win.bounded) return backward ? "aft::local_backward" : "aft::local";
  if (p.bias.kind == bias_kind::none) return backward ? "aft::simple_backward" : "aft::simple";
  return backward ? "aft::full_backward" : "aft::full";
}

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft

#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
#include "kernels.cuh"
#endif

namespace aft {
inline namespace AFT_ISA {

template <>
struct cuda_backend<float> {
  static constexpr bool included = true;
};
template <>
struct cuda_backend<double> {
  static constexpr bool included = true;
};

template <class C>
void cuda_forward(const problem& p, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_forward<C>(p, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<C>::forward(p, exec.stream);
#endif
}

template <class C>
void cuda_backward(const backward_problem& p, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_backward<C>(p, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<C>::backward(p, exec.stream);
#endif
}

template <class C>
void cuda_reset(const stream_ref& all_slots, index_t first, index_t last, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_reset(all_slots, first, last, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<void>::reset(all_slots, first, last, exec.stream);
#endif
}

template <class C>
void cuda_copy(const stream_ref& all_slots, const length_list& from, const length_list& to, index_t n,
               const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_copy(all_slots, from, to, n, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<void>::copy(all_slots, from, to, n, exec.stream);
#endif
}

template <class C>
void cuda_read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_read(all_slots, slot, to, bytes, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<void>::read(all_slots, slot, to, bytes, exec.stream);
#endif
}

template <class C>
void cuda_serve(device_request& r, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_serve(r, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<void>::serve(r, exec.stream);
#endif
}

template <class C>
void cuda_attention_map(const problem& p, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_attention_map<C>(p, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<C>::attention_map(p, exec.stream);
#endif
}

template <class C>
void cuda_filter(const filter_problem& p, const cuda& exec) {
#if defined(__CUDACC__) || defined(AFT_DEVICE_EMULATOR)
  cuda_impl::run_filter<C>(p, exec.stream);
#else
  add_with_aft_add_cuda_instantiations<C>::filter(p, exec.stream);
#endif
}

}  // namespace AFT_ISA
}  // namespace aft
