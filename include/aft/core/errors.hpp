// SPDX-License-Identifier: Apache-2.0
/// @file errors.hpp  The two exceptions of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace aft {

// Visible whatever a library is compiled with: where type information is compared by address (libc++), a program would
// else not recognise what a library with -fvisibility=hidden throws.

/// A call whose arguments do not fit together. Thrown before anything is written; the text names the call, the
/// argument as the documentation spells it, what was expected and what came.
class [[gnu::visibility("default")]] shape_error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A failure that a device reported; the text holds the call's name and the device's own name of the error.
class [[gnu::visibility("default")]] device_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace aft
