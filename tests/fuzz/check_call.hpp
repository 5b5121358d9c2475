// SPDX-License-Identifier: Apache-2.0
/// @file check_call.hpp  Bytes become an operator, shapes, strides, options and numbers with special values among them;
/// the library's result is held against the reference by the rule of the unit tests, and against itself on other
/// threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuzz {

/// Whether the call is right; what is wrong with it goes to std::cerr.
bool check_call(const std::uint8_t* data, std::size_t size);

}  // namespace fuzz
