// SPDX-License-Identifier: Apache-2.0

#include "common/report/program.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>

namespace examples {

namespace {

// Written by a signal handler in one thread, read by another.
std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note_interrupt(int signal) {
  stop = true;
  std::signal(signal, SIG_DFL);
}

struct failure {
  int status = EXIT_SUCCESS;
  std::string text;
};

/// The exception that is being handled.
failure failure_now() {
  try {
    throw;
  } catch (const user_error& e) {
    return {exit_user_error, e.what()};
  } catch (const std::filesystem::filesystem_error& e) {
    return {exit_user_error, e.what()};
  } catch (const std::bad_alloc&) {
    return {exit_user_error, "not enough memory for a model of this size"};
  } catch (const std::exception& e) {
    return {EXIT_FAILURE, e.what()};
  }
}

/// What became of one rank's work, as other ranks get it: messages have one length.
struct verdict {
  int status = EXIT_SUCCESS;
  char text[508] = "";
};

/// All ranks throw it.
class common_failure : public std::runtime_error {
 public:
  common_failure(const std::string& text, int status) : std::runtime_error(text), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

}  // namespace

void note_interrupts() {
  std::signal(SIGINT, note_interrupt);
  std::signal(SIGTERM, note_interrupt);
  // A thread that only waits takes them. Where a thread that computes did, 14 of 35 interrupts left a corrupt heap, the
  // one that was looked into within a matrix product of oneDNN; none of 40 does since.
  std::thread([] {
    for (;;) pause();
  }).detach();
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGINT);
  sigaddset(&both, SIGTERM);
  // Threads that start from now on inherit it.
  pthread_sigmask(SIG_BLOCK, &both, nullptr);
}

bool interrupted() {
  return stop;
}

int run_program(const char* name, const std::function<int()>& work, const ranks* among) {
  try {
    return work();
  } catch (const common_failure& e) {
    if (is_first(among)) std::fprintf(stderr, "%s: %s\n", name, e.what());
    return e.status();
  } catch (...) {
    const failure f = failure_now();
    std::fprintf(stderr, "%s: %s\n", name, f.text.c_str());
    if (among != nullptr && among->size() > 1) among->abort();
    return f.status;
  }
}

void together(const ranks* among, const std::function<void()>& work) {
  if (among == nullptr || among->size() == 1) return work();
  verdict own;
  try {
    work();
  } catch (...) {
    const failure f = failure_now();
    own.status = f.status;
    std::strncpy(own.text, f.text.c_str(), sizeof own.text - 1);
  }
  const std::vector<verdict> all = among->values(own);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].status != EXIT_SUCCESS)
      throw common_failure((r == 0 ? "" : "rank " + std::to_string(r) + ": ") + all[r].text, all[r].status);
}

void require_alike(const ranks* among, std::uint64_t own, const char* what) {
  if (among == nullptr) return;
  const std::vector<std::uint64_t> all = among->values(own);
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw common_failure("rank " + std::to_string(r) + " has another " + what + " than rank 0", exit_user_error);
}

bool on_any(const ranks* among, bool own) {
  if (among == nullptr) return own;
  const std::vector<char> all = among->values(static_cast<char>(own));
  return std::find(all.begin(), all.end(), 1) != all.end();
}

}  // namespace examples
