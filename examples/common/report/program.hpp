// SPDX-License-Identifier: Apache-2.0
//
// What all the programs do around their work: interrupts, exit status, and a training run that is shown and saved.
#pragma once

#include "common/report/progress.hpp"
#include "common/support/ranks.hpp"
#include "common/support/user_error.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>

namespace examples {

inline constexpr int exit_user_error = 2;
inline constexpr int exit_interrupted = 130;

/// The first Ctrl-C, or SIGTERM, asks the program to stop where it can go on from; a second one ends it at once.
void note_interrupts();
bool interrupted();

/// work()'s result. What it throws is said in one line on stderr that begins with the program's name; exit_user_error
/// where the person at the command line can put it right. Of the ranks of `among` the first speaks of what all throw,
/// and a rank that fails alone ends the others.
int run_program(const char* name, const std::function<int()>& work, const ranks* among = nullptr);

/// work() on every rank. What it throws on one, all throw when all are done, so that nobody waits for a rank that gave
/// up. Without ranks, or with one, it is work() alone.
void together(const ranks* among, const std::function<void()>& work);
/// Throws on all ranks where their numbers differ; `what` they stand for is in the message.
void require_alike(const ranks* among, std::uint64_t own, const char* what);
/// Whether it is so on any rank.
bool on_any(const ranks* among, bool own);
/// Who speaks and writes files.
inline bool is_first(const ranks* among) {
  return among == nullptr || among->rank() == 0;
}

/// What a command line says of one training run.
struct training_plan {
  std::int64_t stop_at = 0;     // 0: at the end
  std::int64_t save_every = 1;  // steps
  std::filesystem::path save;   // empty: nowhere
  std::function<bool()> stop = interrupted;
};

/// Steps until the end or an interrupt, and saves. `items`: of one step, for the speed. Throws what the run's own
/// functions throw.
template <class Run>
void train(Run& run, const std::string& name, const progress_words& words, double items, const training_plan& plan) {
  const std::int64_t steps = run.settings().steps;
  const std::int64_t end = plan.stop_at > 0 ? std::min(plan.stop_at, steps) : steps;
  progress display(name, words, steps, run.steps_done());
  while (run.steps_done() < end && !plan.stop()) {
    const double bits = run.step();
    const double seconds = run.step_milliseconds() / 1e3;
    display.step(run.steps_done(), bits, items / seconds, seconds * static_cast<double>(end - run.steps_done()));
    if (!plan.save.empty() && run.steps_done() % plan.save_every == 0 && run.steps_done() < end) run.save(plan.save);
  }
  display.finish();
  if (!plan.save.empty()) run.save(plan.save);
}

}  // namespace examples
