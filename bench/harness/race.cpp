// SPDX-License-Identifier: Apache-2.0
#include "race.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "handover.hpp"

namespace aft_bench {
namespace {

/// Seconds that a sample lasts at least: a clock's and a scheduler's hiccups are then below a percent.
constexpr double least = 5e-3;
/// Seconds of calls that nobody times, before a sample of short calls: they feel what the contestant before them left
/// in the caches, and their own threads have to be woken. A third-level cache that others have used is won back slowly,
/// as it holds on to what they used often: on a Zen 5 whose two cores share one, AFT-simple on arrays of 17 MB behind
/// PyTorch's took 450 us, 200, 170, after 25 calls still 150, and 106 from the 75th call on, 10 ms later.
constexpr double rehearsal = 20e-3;
/// A call as long as this needs no rehearsal at all. Depthwise conv behind PyTorch's took 22.5 ms in its first call
/// where it takes 20.
constexpr double short_call = 200e-3;
/// Seconds between contestants of different processes. Threads of an OpenMP runtime wait actively for a few
/// milliseconds after a call, on the processors that the next contestant has threads for: on two of them calls of
/// AFT-simple took three times as long behind PyTorch's as they do otherwise, and of AFT-full on 8 x 1024 x 512 1.17
/// times.
constexpr std::chrono::milliseconds settling{20};
/// Beyond this even a first call's extra costs are below a percent, and the call is a sample.
constexpr double long_call = 5;

std::function<double(std::int64_t)> timed(std::function<void()> work) {
  return [work = std::move(work)](std::int64_t calls) {
    using clock = std::chrono::steady_clock;
    const clock::time_point start = clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      work();
      benchmark::ClobberMemory();
    }
    return std::chrono::duration<double>(clock::now() - start).count();
  };
}

}  // namespace

settings& run_settings() {
  static settings only;
  return only;
}

race& race::enter(std::string name, std::function<void()> work) {
  return enter_timed(std::move(name), timed(std::move(work)));
}

race& race::enter_timed(std::string name, std::function<double(std::int64_t)> timed_work, place where) {
  contestants_.push_back({std::move(name), std::move(timed_work), where});
  return *this;
}

race& race::note(const std::string& key, double value) {
  notes_[key] = value;
  return *this;
}

race& race::hold(std::shared_ptr<void> data) {
  held_.push_back(std::move(data));
  return *this;
}

/// The first call pays for page faults, thread creation and code generation in the libraries: unless it is long, it is
/// never a result.
double race::calibrate(contestant& c) {
  const double first = c.timed(1);
  if (first >= least) return first;
  std::int64_t calls = 1;
  double seconds = first;
  for (int i = 0; i < 20 && seconds < rehearsal / 2; ++i) {
    calls *= 2;
    seconds = c.timed(calls);
  }
  return seconds / static_cast<double>(calls);
}

void race::settle(const contestant& next) {
  if (std::exchange(last_, next.where) != next.where) std::this_thread::sleep_for(settling);
}

std::map<std::string, double> race::round() {
  std::map<std::string, double> seconds;
  for (contestant& c : contestants_) {
    if (c.calls != 0) continue;
    settle(c);
    const double one = std::max(calibrate(c), 1e-9);
    c.calls = std::max<std::int64_t>(1, static_cast<std::int64_t>(least / one));
    c.rehearsal = one < short_call ? std::max<std::int64_t>(1, static_cast<std::int64_t>(rehearsal / one)) : 0;
    if (one >= long_call) c.spare = one;
  }
  for (std::size_t i = 0; i < contestants_.size(); ++i) {
    contestant& c = contestants_[(first_ + i) % contestants_.size()];
    settle(c);
    if (c.rehearsal > 0) c.timed(c.rehearsal);
    const double before = std::exchange(c.spare, 0.0);
    const double all = before > 0 ? before : c.timed(c.calls);
    seconds[c.name] = all / static_cast<double>(c.calls);
    taken_ += all;
  }
  ++first_;
  return seconds;
}

namespace {

/// handover() between the contestants of two rounds, none of whose threads wait actively meanwhile; 0 where one thread
/// is all that runs.
double settled_handover() {
  if (run_settings().threads == 1) return 0;
  std::this_thread::sleep_for(settling);
  const double way = handover();
  std::this_thread::sleep_for(settling);
  return way;
}

/// One repetition of the harness: a round of the race, which is made when its name first comes up.
void run_round(benchmark::State& state, const std::string& name, const std::function<race()>& make) {
  struct running {
    std::string name;
    std::optional<race> now;
    double near = 0, far = 0;
  };
  static running current;
  try {
    if (current.name != name) {
      current.now.reset();
      current.name = name;
      current.near = current.far = settled_handover();
      current.now.emplace(make());
    }
    if (!current.now) return state.SkipWithError("could not begin");
    if (current.now->over()) {
      // The harness asks for every round: this one has no contestants.
      for (auto _ : state) state.SetIterationTime(0);
      return;
    }
    for (auto _ : state) {
      double all = 0;
      for (const auto& [who, seconds] : current.now->round()) {
        state.counters[who] = seconds;
        all += seconds;
      }
      state.SetIterationTime(all);
    }
    if (current.far > 0) {
      const double now = settled_handover();
      state.counters["handover.least"] = current.near = std::min(current.near, now);
      state.counters["handover.most"] = current.far = std::max(current.far, now);
    }
    for (const auto& [key, value] : current.now->notes()) state.counters[key] = value;
  } catch (const std::exception& e) {
    // The other races go on.
    state.SkipWithError(e.what());
  }
}

}  // namespace

void add_race(const std::string& name, int rounds, std::function<race()> make) {
  // A race of one iteration needs no guess at a number of iterations.
  benchmark::RegisterBenchmark(
      name.c_str(), [name, make = std::move(make)](benchmark::State& state) { run_round(state, name, make); })
      ->Iterations(1)
      ->Repetitions(run_settings().rounds > 0 ? std::min(rounds, run_settings().rounds) : rounds)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace aft_bench
