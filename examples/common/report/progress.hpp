// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace examples {

class progress_display;

/// The words for what a run shows: what is counted, what its bits are for, and what its speed is of.
struct progress_words {
  std::string unit;
  std::string loss;
  std::string items;
};

/// What a run shows while it goes on: a bar on a terminal, a line now and then anywhere else.
class progress {
 public:
  progress(const std::string& name, progress_words words, std::int64_t total, std::int64_t done);
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress();

  void step(std::int64_t done, double bits, double items_per_second, double seconds_left);
  /// The same of a run without a loss.
  void step(std::int64_t done, double per_second, double seconds_left);
  /// Ends the bar, so that other output may follow.
  void finish();

 private:
  progress_words words_;
  std::unique_ptr<progress_display> display_;
};

}  // namespace examples
