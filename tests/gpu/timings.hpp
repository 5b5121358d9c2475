// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace aft::gpu {

/// Times every operator on the device beside a copy and cuBLAS of the same run, and writes the figures as JSON.
void write_timings(const char* path, const std::string& only);

/// Makes each call once and times nothing: for a profiler that watches the kernels.
void call_each(const std::string& only);

}  // namespace aft::gpu
