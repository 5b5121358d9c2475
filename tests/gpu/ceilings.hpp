// SPDX-License-Identifier: Apache-2.0
/// @file ceilings.hpp  Time on the device, and what the device can do at most: a copy and a matrix product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aft::gpu {

std::string device_name();

/// Device memory; each throws std::runtime_error with CUDA's error.
void* take_device(std::size_t bytes);
void give_device(void* p) noexcept;
/// Waits for all work.
void finish_device();
void copy_to_device(void* to, const void* from, std::size_t bytes);

/// The median over many runs of work(round, stream), by events. About a second a call.
double median_milliseconds(const std::function<void(std::size_t, void*)>& work);

/// A device-to-device copy of 1 GiB, bytes read and written counted.
double copy_bytes_per_second();

/// cuBLAS: T x T times T x columns, in bfloat16 with float sums, or in float. The product that AFT-full is.
double gemm_milliseconds(bool bfloat16, std::int64_t T, std::int64_t columns);

}  // namespace aft::gpu
