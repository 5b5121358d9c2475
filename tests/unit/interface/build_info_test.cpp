// SPDX-License-Identifier: Apache-2.0
// The line has to follow the flags that this very file was compiled with, whichever they are in a build tree.
#include <string>

#include <doctest/doctest.h>

#include <aft/aft.hpp>

namespace {

bool tells(const std::string& part) {
  return (std::string(", ") + aft::build_info() + ",").find(", " + part + ",") != std::string::npos;
}

}  // namespace

TEST_CASE("build_info is one line that begins with the version") {
  const std::string text = aft::build_info();
  const std::string version = "aft " + std::to_string(AFT_VERSION_MAJOR) + "." + std::to_string(AFT_VERSION_MINOR) +
                              "." + std::to_string(AFT_VERSION_PATCH) + ", ";
  CHECK(text.rfind(version, 0) == 0);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find("xsimd " + std::to_string(XSIMD_VERSION_MAJOR) + ".") != std::string::npos);
}

TEST_CASE("build_info tells whether calls can use threads") {
#if defined(_OPENMP)
  CHECK(tells("OpenMP"));
  CHECK_FALSE(tells("no OpenMP (one thread)"));
#else
  CHECK(tells("no OpenMP (one thread)"));
  CHECK_FALSE(tells("OpenMP"));
#endif
}

TEST_CASE("build_info tells whether the file was optimised") {
#if defined(__OPTIMIZE__)
  CHECK(tells("optimised"));
#else
  CHECK(tells("not optimised"));
#endif
}

TEST_CASE("build_info names the instruction set by what a user would look for") {
  const std::string text = aft::build_info();
  INFO(text);
#if defined(AFT_EMULATED_SIMD)
  CHECK(tells("vectors of plain numbers"));
#elif defined(__AVX512F__)
  CHECK(text.find(", AVX-512") != std::string::npos);
#elif defined(__AVX2__)
  CHECK(text.find(", AVX2") != std::string::npos);
#elif defined(__AVX__)
  CHECK(text.find(", AVX") != std::string::npos);
#elif defined(__SSE4_2__)
  CHECK(tells("SSE4.2"));
#elif defined(__SSE4_1__)
  CHECK(tells("SSE4.1"));
#elif defined(__SSSE3__)
  CHECK(tells("SSSE3"));
#elif defined(__SSE3__)
  CHECK(tells("SSE3"));
#elif defined(__SSE2__)
  CHECK(tells("SSE2"));
#elif defined(__ARM_NEON)
  CHECK(tells("NEON"));
#else
  CHECK(tells("no instruction set that aft knows"));
#endif
}
