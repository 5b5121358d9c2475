// SPDX-License-Identifier: Apache-2.0
// Whatever brought aft here, a program has to get all of it: threads, exceptions that it can catch by type, and a line
// that says what it got. Exit status 0 if so.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string>

#include <aft/aft.hpp>

#include "calls.hpp"

namespace {

/// Threads of this process; those of an OpenMP team stay after it.
long threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

bool refusal_is_caught_by_type() {
  try {
    make_a_wrong_call();
  } catch (const aft::shape_error& error) {
    std::printf("refused: %s\n", error.what());
    return true;
  } catch (const std::exception& error) {
    std::printf("not caught as aft::shape_error: %s\n", error.what());
    return false;
  }
  std::puts("v with 4 keys beside k with 5 was accepted");
  return false;
}

}  // namespace

int main() {
  std::printf("program: %s\nlibrary: %s\n", aft::build_info(), build_info_of_calls());
  const std::string wrong = call_with_two_threads();
  if (!wrong.empty()) return std::puts(wrong.c_str()), 1;
  const long threads = threads_now();
  std::printf("threads: %ld\n", threads);
  if (threads < 2) return std::puts("OpenMP was lost on the way: the call ran on one thread"), 1;
  return refusal_is_caught_by_type() ? 0 : 1;
}
