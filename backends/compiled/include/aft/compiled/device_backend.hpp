// SPDX-License-Identifier: Apache-2.0
/// @file compiled/device_backend.hpp  The CUDA backend of a file that links an aft::compiled built with CUDA
/// (AFT_COMPILED_CUDA, which the target sets): calls into the library. The file needs neither nvcc nor CUDA's headers.
#pragma once

#include "device_entries.hpp"

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
  if constexpr (std::is_same_v<C, float>) {
    AFT_COMPILED_ENTRIES::compiled_cuda_forward_f32(p, exec.stream);
  } else {
    AFT_COMPILED_ENTRIES::compiled_cuda_forward_f64(p, exec.stream);
  }
}
template <class C>
void cuda_backward(const backward_problem& p, const cuda& exec) {
  if constexpr (std::is_same_v<C, float>) {
    AFT_COMPILED_ENTRIES::compiled_cuda_backward_f32(p, exec.stream);
  } else {
    AFT_COMPILED_ENTRIES::compiled_cuda_backward_f64(p, exec.stream);
  }
}
template <class C>
void cuda_attention_map(const problem& p, const cuda& exec) {
  if constexpr (std::is_same_v<C, float>) {
    AFT_COMPILED_ENTRIES::compiled_cuda_attention_map_f32(p, exec.stream);
  } else {
    AFT_COMPILED_ENTRIES::compiled_cuda_attention_map_f64(p, exec.stream);
  }
}
template <class C>
void cuda_filter(const filter_problem& p, const cuda& exec) {
  AFT_COMPILED_ENTRIES::compiled_cuda_filter(p, exec.stream);
}
template <class C>
void cuda_reset(const stream_ref& all_slots, index_t first, index_t last, const cuda& exec) {
  AFT_COMPILED_ENTRIES::compiled_cuda_reset(all_slots, first, last, exec.stream);
}
template <class C>
void cuda_copy(const stream_ref& all_slots, const length_list& from, const length_list& to, index_t n,
               const cuda& exec) {
  AFT_COMPILED_ENTRIES::compiled_cuda_copy(all_slots, from, to, n, exec.stream);
}
template <class C>
void cuda_read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes, const cuda& exec) {
  AFT_COMPILED_ENTRIES::compiled_cuda_read(all_slots, slot, to, bytes, exec.stream);
}
template <class C>
void cuda_serve(device_request& r, const cuda& exec) {
  AFT_COMPILED_ENTRIES::compiled_cuda_serve(r, exec.stream);
}

}  // namespace AFT_ISA
}  // namespace aft
