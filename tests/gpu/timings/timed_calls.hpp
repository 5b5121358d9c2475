// SPDX-License-Identifier: Apache-2.0
/// @file timed_calls.hpp  The calls that are timed on a GPU, and counted without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aft::gpu {

/// A product that a call is compared with: rows x depth x columns, so many times.
struct timed_product {
  bool half_width = false;
  std::int64_t rows = 0, columns = 0;
  int times = 0;
};

/// A call that may be made any number of times while its visitor looks at it.
struct timed_call {
  const char *name = nullptr, *type = nullptr, *pass = nullptr;
  double bytes = 0;  ///< that any implementation moves
  timed_product product{};
  std::function<void(std::size_t round, void* stream)> run;
};
using call_visitor = std::function<void(const timed_call&)>;
using name_listener = std::function<void(const char*)>;

/// Calls on whole sequences and grids, forward and with gradients.
void whole_calls(const std::string& only, const call_visitor& visit);
void whole_calls(const name_listener& name);
/// One new position for each of some slots.
void stream_steps(const std::string& only, const call_visitor& visit);
void stream_steps(const name_listener& name);
/// Sequences of different lengths, one behind the other.
void packed_calls(const std::string& only, const call_visitor& visit);
void packed_calls(const name_listener& name);

}  // namespace aft::gpu
