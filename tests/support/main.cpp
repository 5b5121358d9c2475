// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// Memory that was freed stays out of use until 16 MiB more have been: a hundred calls of these sizes. The 256 MiB that
// it is without asking are fresh pages all the time, a sixth of the time of the device's tests.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16";
}
#endif
#endif
