// SPDX-License-Identifier: Apache-2.0
/// @file launch/access.cuh  Which calls have their tensors in lines (tensor/access.cuh). Nothing that is chosen here
/// changes a bit of a result.
#pragma once

#include "../tensor/access.cuh"
#include "../tensor/columns.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// A view may begin anywhere: only where all of its lines begin at whole chunks are accesses of them aligned. A tensor
/// that the call does not have is in the way of nothing.
inline bool in_lines(const tensor& x, dtype type) {
  if (!x.set) return true;
  const index_t size = type == dtype::f64 ? 8 : type == dtype::f32 ? 4 : 2;
  const auto aligned = [](index_t bytes) { return bytes % line_alignment == 0; };
  return x.type == type && x.sc == 1 && x.even &&
         aligned(static_cast<index_t>(reinterpret_cast<std::intptr_t>(x.data))) && aligned(x.sb * size) &&
         aligned(x.s2 * size);
}

/// Heads of whole accesses of `channels`, so that none of them is of two batch elements.
inline bool in_whole_lines(const columns& cols, index_t channels) {
  return cols.width % channels == 0;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
