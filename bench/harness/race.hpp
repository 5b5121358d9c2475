// SPDX-License-Identifier: Apache-2.0
/// @file race.hpp  Contestants that do the same work on the same data, timed in turns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace aft_bench {

/// What the command line says for the whole run.
struct settings {
  int threads = 0;    ///< of every contestant that does not say otherwise; 0: what OpenMP would use
  int rounds = 0;     ///< of every race at most; 0: as many as the race asks for
  std::string peers;  ///< shell command that starts the peers; empty: none take part
};
settings& run_settings();

/// Speed is compared by ratios, and machines drift within seconds. So each round runs every contestant once, one
/// directly after the other, beginning with another one each round; ratios are formed within a round.
class race {
 public:
  enum class place { here, other_process };

  /// A contestant's work, once. What takes less than `least` seconds is repeated until it fills them.
  race& enter(std::string name, std::function<void()> work);
  /// One that times itself, as another process must: `timed(n)` does the work n times and returns the seconds.
  /// Before and after those of another process is a pause, until nobody's threads wait actively any more.
  race& enter_timed(std::string name, std::function<double(std::int64_t)> timed, place where = place::here);
  /// A fact about a contestant, such as its flops or bytes, kept beside the times.
  race& note(const std::string& key, double value);
  /// Keeps what the contestants use alive as long as the race.
  race& hold(std::shared_ptr<void> data);

  /// Seconds per call of every contestant, by name.
  std::map<std::string, double> round();
  /// True when rounds have taken a minute: a contestant of half a minute a call is known well enough.
  bool over() const { return taken_ >= 60; }
  const std::map<std::string, double>& notes() const { return notes_; }

 private:
  struct contestant {
    std::string name;
    std::function<double(std::int64_t)> timed;
    place where = place::here;
    std::int64_t calls = 0;
    std::int64_t rehearsal = 0;  ///< calls before a sample
    double spare = 0;            ///< a first call too long to be repeated for what first calls pay
  };
  static double calibrate(contestant& c);
  void settle(const contestant& next);

  std::vector<contestant> contestants_;
  std::map<std::string, double> notes_;
  std::vector<std::shared_ptr<void>> held_;
  std::size_t first_ = 0;
  place last_ = place::here;
  double taken_ = 0;  ///< seconds, of samples only
};

/// Registers a race with the harness. `make` runs when the race starts, so that only one race's data exist at a time.
void add_race(const std::string& name, int rounds, std::function<race()> make);

}  // namespace aft_bench
