// SPDX-License-Identifier: Apache-2.0
/// @file gpu.hpp  The little that this package asks of CUDA itself: memory for results, and a wait. All else is the
/// library's.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace aft::python::gpu {

/// Whether the library that is linked was built with CUDA. Without it, it refuses every array on a GPU, and nothing of
/// this file is called.
bool is_built();

/// What CUDA says of a device.
struct failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `bytes` of a device's memory, aligned for every type. Throws std::bad_alloc where it has none left, and failure
/// where there is no such device.
std::byte* allocate(int device, std::size_t bytes);
/// Gives it back, from any thread, and not before work of any stream on it is done.
void release(std::byte* memory) noexcept;

/// Returns when everything that was put on the stream is done; of the default stream of the device, or below 0 of the
/// current one. Empty, or what CUDA says of an error, which may be that
/// of a kernel from long before.
std::string wait(int device, void* stream);

}  // namespace aft::python::gpu
