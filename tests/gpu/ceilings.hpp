// SPDX-License-Identifier: Apache-2.0
/// @file ceilings.hpp  Time on the device, and what the device can do at most: a copy and a matrix product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aft::gpu {

std::string device_name();

/// The pool that calls take their scratch from keeps it from one to the next. By default it goes back to the system
/// whenever the program waits for the device, as tests and timings do all the time, and each call would map its memory
/// anew.
void keep_scratch();

/// Device memory; each throws std::runtime_error with CUDA's error.
void* take_device(std::size_t bytes);
void give_device(void* p) noexcept;
/// Waits for all work.
void finish_device();
void copy_to_device(void* to, const void* from, std::size_t bytes);

struct timing {
  double ms = 0;          ///< of one call, the median of the samples
  std::size_t calls = 1;  ///< between two events
  std::size_t samples = 0;
  std::size_t late = 0;  ///< samples in which the host was not done before the device began: its time may be in them
};

/// Runs work(round, stream) many times and measures by events, between which nothing waits for the host. About a
/// second.
timing median_milliseconds(const std::function<void(std::size_t, void*)>& work);

/// A device-to-device copy of 1 GiB, bytes read and written counted.
double copy_bytes_per_second();

/// cuBLAS: T x T times T x columns, in bfloat16 with float sums, or in float. The product that AFT-full is. 0 where the
/// machine has no cuBLAS.
double gemm_milliseconds(bool bfloat16, std::int64_t T, std::int64_t columns);

}  // namespace aft::gpu
