// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

namespace examples {

/// What is wrong with the value of an option that has to be above 0, or nothing. CLI11's own check prints the largest
/// double, with all its digits.
inline std::string complaint_unless_positive(const std::string& value) {
  char* end = nullptr;
  const double x = std::strtod(value.c_str(), &end);
  return *end == '\0' && x > 0 && std::isfinite(x) ? "" : "expected a number above 0, not " + value;
}

}  // namespace examples
