// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace examples {

/// What the person at the command line can put right: a missing file, a corrupt checkpoint, settings that
/// contradict each other. The program prints the message and exits with status 2.
class user_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace examples
