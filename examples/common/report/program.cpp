// SPDX-License-Identifier: Apache-2.0

#include "common/report/program.hpp"

#include <cstdio>
#include <cstdlib>
#include <new>

namespace examples {

namespace {

volatile std::sig_atomic_t stop = 0;

extern "C" void note_interrupt(int signal) {
  stop = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void note_interrupts() {
  std::signal(SIGINT, note_interrupt);
  std::signal(SIGTERM, note_interrupt);
}

bool interrupted() {
  return stop != 0;
}

int run_program(const char* name, const std::function<int()>& work) {
  const auto complain = [&](const char* what, int status) {
    std::fprintf(stderr, "%s: %s\n", name, what);
    return status;
  };
  try {
    return work();
  } catch (const user_error& e) {
    return complain(e.what(), exit_user_error);
  } catch (const std::filesystem::filesystem_error& e) {
    return complain(e.what(), exit_user_error);
  } catch (const std::bad_alloc&) {
    return complain("not enough memory for a model of this size", exit_user_error);
  } catch (const std::exception& e) {
    return complain(e.what(), EXIT_FAILURE);
  }
}

}  // namespace examples
