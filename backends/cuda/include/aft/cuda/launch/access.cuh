// SPDX-License-Identifier: Apache-2.0
/// @file launch/access.cuh  Which calls have their tensors in lines (tensor/access.cuh). Nothing that is chosen here
/// changes a bit of a result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "../scan/gate_gradient.cuh"
#include "../scan/keys.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// A view may begin anywhere: only where all of its lines begin at whole chunks are accesses of them aligned. A tensor
/// that the call does not have is in the way of nothing.
inline bool in_lines(const tensor& x, dtype type) {
  if (!x.set) return true;
  const index_t size = type == dtype::f64 ? 8 : type == dtype::f32 ? 4 : 2;
  const auto aligned = [](index_t bytes) { return bytes % line_alignment == 0; };
  return x.type == type && x.sc == 1 && x.even && reinterpret_cast<std::uintptr_t>(x.data) % line_alignment == 0 &&
         aligned(x.sb * size) && aligned(x.s2 * size);
}

/// Heads of whole accesses of `channels`, so that none of them is of two batch elements.
inline bool in_whole_lines(const columns& cols, index_t channels) {
  return cols.width % channels == 0;
}

/// Whether a thread finds the positions of a channel by steps, in memory of `type`.
inline bool in_steps(const tensor& x, dtype type) {
  return !x.set || (x.type == type && x.even);
}

using tensor_list = std::initializer_list<const tensor*>;

inline bool all_in_steps(tensor_list list, dtype type) {
  return std::all_of(list.begin(), list.end(), [&](const tensor* x) { return in_steps(*x, type); });
}

/// kernel(access): the one for the way in which it reaches its data, all of one type, and what was saved, in float.
/// Half has none of its own, and nor have averages in bfloat16.
template <class C, class F>
auto by_access(tensor_list data, tensor_list saved, const F& kernel) {
  if constexpr (sizeof(C) == sizeof(float)) {
    if (all_in_steps(saved, dtype::f32)) {
      if (all_in_steps(data, dtype::f32)) return kernel(even_steps<float>{});
      if (all_in_steps(data, dtype::bf16)) return kernel(even_steps<bfloat16>{});
    }
  }
  return kernel(any_layout{});
}
/// For a kernel that reaches nothing but what was saved.
template <class C, class F>
auto by_saved_access(tensor_list saved, const F& kernel) {
  if constexpr (sizeof(C) == sizeof(float)) {
    if (all_in_steps(saved, dtype::f32)) return kernel(even_steps<float>{});
  }
  return kernel(any_layout{});
}

template <class C>
auto scan_chunks_of(const device_call<C>& call) {
  return by_access<C>({&call.k, &call.v}, {}, [](auto access) { return &scan_chunks_kernel<C, decltype(access)>; });
}
template <class C>
auto scan_queries_of(const device_call<C>& call) {
  return by_saved_access<C>({&call.average, &call.lse},
                            [](auto access) { return &scan_queries_kernel<C, decltype(access)>; });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
