// SPDX-License-Identifier: Apache-2.0
/// @file engines.hpp  The library as several compilers built it for several instruction sets, in one test program.
///
/// The reference in long double takes most of a test's time. One program that runs all engines evaluates it once.
#pragma once

#include <string>
#include <vector>

#include "device_runs.hpp"
#include "harness/typed_functions.hpp"

namespace aft::test {

/// An engine and what to call it in messages.
struct named_engine {
  std::string name;
  const engine* functions;
};

/// The program's own engine, then those loaded beside it: all that were built and that this processor can run. The
/// emulated device has one. The variable AFT_TEST_ENGINE keeps the one of that name.
const std::vector<named_engine>& engines();

/// Names of engines that were built, but that this processor cannot run.
const std::vector<std::string>& engines_left_out();

/// The one that run_forward and run_backward use.
const named_engine& current_engine();

/// Whether this is the first run of the test cases in the current place. On the processor that is the one with the
/// first engine, whose checks against the reference visit all of them, so that the other runs leave those checks out.
bool first_run();

/// Whether sanitizers watch this build: it looks at memory and leaves the numbers, which take most of the time, to the
/// others. An engine with this build's sizes of blocks is among theirs.
bool watched();

/// Makes an engine the current one while it lives.
class with_engine {
 public:
  explicit with_engine(const named_engine& chosen);
  ~with_engine();
  with_engine(const with_engine&) = delete;
  with_engine& operator=(const with_engine&) = delete;

 private:
  const named_engine* before_;
};

/// Whether the current engine serves data of this type.
bool serves(dtype type);

/// Calls f() with every engine that serves the type as the current one; on a device with the first, which calls it.
template <class F>
void for_each_engine(dtype type, F f) {
  for (const named_engine& each : engines()) {
    if (on_device() && &each != &engines().front()) return;
    const with_engine current(each);
    if (serves(type)) f();
  }
}

}  // namespace aft::test
