// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace examples {

class progress_display;

/// What a run shows while it goes on: a bar on a terminal, a line now and then anywhere else.
class progress {
 public:
  /// `unit`: what is counted, in one word.
  progress(const std::string& name, const std::string& unit, std::int64_t total, std::int64_t done);
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress();

  void step(std::int64_t done, double bits, double tokens_per_second, double seconds_left);
  /// The same of a run without a loss.
  void step(std::int64_t done, double per_second, double seconds_left);
  /// Ends the bar, so that other output may follow.
  void finish();

 private:
  std::unique_ptr<progress_display> display_;
};

}  // namespace examples
