// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

namespace examples {

/// Milliseconds of the median, 0 of no steps: the first steps touch fresh memory, and some the machine gave to somebody
/// else.
inline double median_milliseconds(const std::vector<double>& seconds) {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return 1e3 * sorted[sorted.size() / 2];
}

}  // namespace examples
