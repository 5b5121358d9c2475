// SPDX-License-Identifier: Apache-2.0
/// @file tensor/copy_elements.cuh  Elements from one place of device memory to another, whatever the strides of both.
#pragma once

#include <aft/core/problem/device_request.hpp>

#include "../device/device.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int element_threads = 256;

/// A thread copies one of the `count` elements of `to`, each of Bytes bytes, which is also what they are aligned to.
template <int Bytes>
AFT_KERNEL(element_threads, 1)
copy_elements_kernel(const AFT_PARAMETER element_block to, const AFT_PARAMETER element_block from,
                     const index_t count) {
  index_t rest = block_index() * element_threads + thread_index();
  if (rest >= count) return;
  index_t at = 0, of = 0;
  // The last axis first, so that neighbours among the threads are neighbours in memory.
  for (int i = element_block::axes - 1; i >= 0; --i) {
    const index_t before = quotient(rest, to.extents[i]), index = rest - before * to.extents[i];
    at += index * to.strides[i];
    of += index * from.strides[i];
    rest = before;
  }
  __builtin_memcpy(__builtin_assume_aligned(to.data + at * Bytes, Bytes),
                   __builtin_assume_aligned(from.data + of * Bytes, Bytes), Bytes);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
