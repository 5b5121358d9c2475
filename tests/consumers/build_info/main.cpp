// SPDX-License-Identifier: Apache-2.0
// Two files of one program, compiled differently: each has to hear about its own flags.
#include <cstdio>
#include <cstring>

#include <aft/aft.hpp>

const char* other_build_info();  // other.cpp: optimised, without OpenMP

int main() {
  const char* const own = aft::build_info();
  std::printf("%s\n%s\n", own, other_build_info());
#if EXPECT_OPENMP
  if (!std::strstr(own, ", OpenMP,")) return std::puts("the package did not pass OpenMP on"), 1;
#endif
  if (!std::strstr(own, ", not optimised,")) return std::puts("main.cpp is not optimised"), 1;
  const char* const other = other_build_info();
  if (!std::strstr(other, ", optimised,")) return std::puts("other.cpp is optimised"), 1;
  if (!std::strstr(other, ", no OpenMP (one thread),")) return std::puts("other.cpp has no OpenMP"), 1;
  return 0;
}
