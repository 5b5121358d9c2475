// SPDX-License-Identifier: Apache-2.0
// Contestants with made-up times: who runs when, how often, and what a round reports.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "race.hpp"

namespace {

struct run {
  std::string who;
  std::int64_t calls;
};

/// Enters a contestant that takes `seconds` a call, and its first call ten times as long.
void enter(aft_bench::race& r, const std::string& name, double seconds, std::vector<run>& log) {
  r.enter_timed(name, [name, seconds, &log, first = true](std::int64_t calls) mutable {
    log.push_back({name, calls});
    const double all = static_cast<double>(calls) * seconds + (first ? 9 * seconds : 0.0);
    first = false;
    return all;
  });
}

std::vector<std::string> order(const std::vector<run>& log) {
  std::vector<std::string> names;
  for (const run& r : log) names.push_back(r.who);
  return names;
}

}  // namespace

TEST_CASE("every round begins with another contestant") {
  std::vector<run> log;
  aft_bench::race r;
  for (const char* name : {"a", "b", "c"}) enter(r, name, 0.1, log);
  r.round();
  log.clear();
  r.round();
  CHECK(order(log) == std::vector<std::string>{"b", "c", "a"});
  log.clear();
  r.round();
  CHECK(order(log) == std::vector<std::string>{"c", "a", "b"});
}

TEST_CASE("when a contestant begins, threads of another process have gone to sleep") {
  using clock = std::chrono::steady_clock;
  using race = aft_bench::race;
  race r;
  race::place last = race::place::here;
  clock::time_point ended = clock::now();
  int changes = 0;
  for (const race::place where : {race::place::here, race::place::other_process, race::place::other_process}) {
    const auto timed = [&, where](std::int64_t calls) {
      if (where != last) {
        ++changes;
        CHECK(clock::now() - ended >= std::chrono::milliseconds(10));
      }
      last = where;
      ended = clock::now();
      return 0.1 * static_cast<double>(calls);
    };
    r.enter_timed(where == race::place::here ? "ours" : "theirs", timed, where);
  }
  for (int i = 0; i < 3; ++i) r.round();
  CHECK(changes > 3);
}

TEST_CASE("the first call is no sample") {
  std::vector<run> log;
  aft_bench::race r;
  enter(r, "a", 0.1, log);
  CHECK(r.round().at("a") == doctest::Approx(0.1));
}

TEST_CASE("a first call that is long enough is a sample, once") {
  std::vector<run> log;
  aft_bench::race r;
  enter(r, "a", 2.0, log);
  CHECK(r.round().at("a") == doctest::Approx(20.0));
  CHECK(log.size() == 1);
  CHECK(r.round().at("a") == doctest::Approx(2.0));
}

TEST_CASE("a race is over when its samples have taken a minute") {
  std::vector<run> log;
  aft_bench::race r;
  enter(r, "a", 2.0, log);
  enter(r, "b", 1e-3, log);
  for (int rounds = 1; rounds <= 21; ++rounds) {
    CHECK(!r.over());
    r.round();
  }
  CHECK(r.over());  // 20 s, then 20 times 2 s; the other one does not count much
}

TEST_CASE("short calls are rehearsed and repeated, and reported per call") {
  std::vector<run> log;
  aft_bench::race r;
  enter(r, "a", 1e-6, log);
  CHECK(r.round().at("a") == doctest::Approx(1e-6));
  log.clear();
  CHECK(r.round().at("a") == doctest::Approx(1e-6));
  REQUIRE(log.size() == 2);
  // 20 ms and 5 ms, in whole calls.
  CHECK(static_cast<double>(log[0].calls) * 1e-6 == doctest::Approx(20e-3).epsilon(1e-3));
  CHECK(static_cast<double>(log[1].calls) * 1e-6 == doctest::Approx(5e-3).epsilon(1e-3));
}

TEST_CASE("calls of tens of milliseconds are rehearsed once, and longer ones not at all") {
  std::vector<run> log;
  aft_bench::race r;
  enter(r, "a", 10e-3, log);
  r.round();
  log.clear();
  r.round();
  REQUIRE(log.size() == 2);
  CHECK(log[0].calls == 1);
  CHECK(log[1].calls == 1);

  std::vector<run> long_log;
  aft_bench::race longer;
  enter(longer, "b", 0.3, long_log);
  longer.round();
  long_log.clear();
  longer.round();
  CHECK(long_log.size() == 1);
}

TEST_CASE("facts are kept beside the times") {
  aft_bench::race r;
  r.note("flops.a", 3.0).note("flops.a", 4.0);
  CHECK(r.notes().at("flops.a") == 4.0);
}
