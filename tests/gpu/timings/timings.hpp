// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "timed_calls.hpp"

namespace aft::gpu {

/// The names of what can be timed, a line each on the standard output; needs no device.
void list_shapes();

/// Times every operator whose shape has `only` in its name beside a copy and cuBLAS of the same run, and writes a line
/// of JSON for each. Returns how many shapes that were.
int write_timings(const std::string& only);

/// What hears of a call before it is made, and gets null when it is over.
using call_listener = std::function<void(const timed_call*)>;

/// Makes each call once and times nothing: for a profiler that watches the kernels.
void call_each(const std::string& only, const call_listener& listener = {});

}  // namespace aft::gpu
