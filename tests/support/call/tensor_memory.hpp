// SPDX-License-Identifier: Apache-2.0
/// @file tensor_memory.hpp  Where the tests' tensors lie: plain memory, or on a real GPU memory that both sides see.
#pragma once

#if defined(AFT_TEST_ON_GPU)
#include "gpu_memory.hpp"
#else
#include <memory>

namespace aft::test {
template <class T>
using tensor_allocator = std::allocator<T>;
/// Waits until what a call has left to a device is done. The emulated device is done when the call returns.
inline void finish_device_work() {}
}  // namespace aft::test
#endif
