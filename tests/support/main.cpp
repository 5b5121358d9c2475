// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <omp.h>

#include <iostream>
#include <string_view>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// Memory that was freed stays out of use until 16 MiB more have been: a hundred calls of these sizes. The 256 MiB that
// it is without asking are fresh pages all the time, a sixth of the time of the device's tests.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16";
}

// Clang's OpenMP runtime gives a team's arrays twice as many places as the machine has processors, and a team that
// outgrows them loses the buffers it held (1440 bytes each, seen in version 14), which the leak checker reports as
// ours. One team as wide as any that a test asks for, before there are such buffers, makes room for all; naming the
// runtime in a suppression would hide our own leaks inside parallel regions too.
// A program that asks for more than 16 threads says so by aft_widest_team(); for all, it doubled the time of the tests.
extern "C" [[gnu::weak]] int aft_widest_team();
namespace {
[[maybe_unused]] const int team_made_wide = [] {
  int threads = 1;
#pragma omp parallel num_threads(aft_widest_team != nullptr ? aft_widest_team() : 16)
#pragma omp single
  threads = omp_get_num_threads();
  return threads;
}();
}  // namespace
#endif
#endif

// Programs with a harness run their cases once with each of its engines (engines.hpp). Weak: others have none.
extern "C" [[gnu::weak]] int aft_test_runs();
extern "C" [[gnu::weak]] const char* aft_test_begin_run(int number);
extern "C" [[gnu::weak]] bool aft_test_repeats(int number, const char* test_case);
extern "C" [[gnu::weak]] void aft_test_also_on(const char* place);

#if defined(__GLIBC__)
// In a program that looks at what malloc holds, which is left as a user has it.
extern "C" [[gnu::weak]] void aft_test_looks_at_malloc();
#endif

namespace {

#if defined(__GLIBC__)
// Tensors come and go by the thousand. Memory that is given back at once comes again as pages full of zeros: half of
// what the tests' programs spent in the kernel, 0.08 of their time.
void keep_memory() {
  if (aft_test_looks_at_malloc != nullptr) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}
#else
void keep_memory() {}
#endif

/// The case that the command line asks for, as ctest does for one at a time.
const char* asked_case(int argc, char** argv) {
  constexpr std::string_view option = "--test-case=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(option)) return argv[i] + option.size();
  }
  return "";
}

/// Devices on which the cases run too (device_runs.hpp).
void take_places(int argc, char** argv) {
  constexpr std::string_view option = "--also-on=";
  for (int i = 1; i < argc; ++i) {
    if (aft_test_also_on != nullptr && std::string_view(argv[i]).starts_with(option))
      aft_test_also_on(argv[i] + option.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_memory();
  take_places(argc, argv);
  doctest::Context context(argc, argv);
  const int runs = aft_test_runs != nullptr ? aft_test_runs() : 1;
  int failed = 0;
  for (int i = 0; i < runs; ++i) {
    if (i > 0 && aft_test_repeats != nullptr && !aft_test_repeats(i, asked_case(argc, argv))) continue;
    const char* const name = aft_test_begin_run != nullptr ? aft_test_begin_run(i) : "";
    if (context.run() != 0) {
      failed = 1;
      if (runs > 1) std::cout << "failed in the run of the engine: " << name << std::endl;
    }
    // It was asked for a list, which is the same for all.
    if (context.shouldExit()) break;
  }
  return failed;
}
