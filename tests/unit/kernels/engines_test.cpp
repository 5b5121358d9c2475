// SPDX-License-Identifier: Apache-2.0
// The engines that this program loads: which, that each is another one, and that a wrong one would be seen.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "engines/engines.hpp"

using namespace aft::test;

namespace {

const setup call{.B = 2, .Tq = 40, .Tk = 40, .d = 18, .H = 2};

bool is_named(const std::vector<named_engine>& all, const std::string& name) {
  return std::any_of(all.begin(), all.end(), [&](const named_engine& e) { return e.name == name; });
}

}  // namespace

TEST_CASE("engines: all that were built and that the processor has instructions for") {
  std::ifstream file("/proc/cpuinfo");
  std::stringstream text;
  text << file.rdbuf();
  const std::string built = AFT_TEST_ENGINES_BUILT;
  for (const auto& isa :
       {std::pair{"v2", " sse4_2 "}, {"v3", " avx2 "}, {"v4", " avx512bw "}, {"v4-bf16", " avx512_bf16 "}}) {
    const std::string name = isa.first,
                      flag = isa.second;  // doctest captures by reference, which bindings forbid clang
    if (built.find("compiled") == std::string::npos || text.str().find(" sse2 ") == std::string::npos) continue;
    if (name == "v2" && built.find("lowest") == std::string::npos) continue;  // cmake/aft_test_engines.cmake
    CAPTURE(name);
    const bool has = text.str().find(flag) != std::string::npos;
    CHECK(is_named(engines(), name) == has);
    CHECK((std::find(engines_left_out().begin(), engines_left_out().end(), name) == engines_left_out().end()) == has);
  }
  for (const char* name : {"clang", "blocks"})
    if (built.find(name) != std::string::npos) CHECK(is_named(engines(), name));
}

TEST_CASE("engines: instruction sets are those that their names say") {
  for (const named_engine& e : engines()) {
    const std::string isa = e.functions->isa;
    if (e.name[0] == 'v' || e.name[0] == 'n') CHECK(isa == e.name);
    if (e.name == "clang" || e.name == "blocks") CHECK(isa.rfind("isa_", 0) == 0);
  }
}

TEST_CASE("engines: each has functions of its own, which its run calls") {
  std::set<const void*> seen;
  for (const named_engine& e : engines()) {
    const with_engine current(e);
    CHECK(&current_engine() == &e);
    if (e.functions->f32 != nullptr)
      CHECK(seen.insert(reinterpret_cast<const void*>(e.functions->f32->run_forward)).second);
  }
}

TEST_CASE("engines: results of several instruction sets differ in bits, or one stands in for another") {
  // Sums in another order: a function that the linker or the loader took from another engine would give equal bits.
  const numbers x = random_numbers(call);
  std::set<std::vector<long double>> kinds;
  std::set<std::string> sets;
  for (const named_engine& e : engines()) {
    const with_engine current(e);
    // v2 has the vectors of the tree's own SSE2 and sums as it does.
    if (!serves(aft::dtype::f32) || e.name == "v2" || e.name == "clang" || e.name == "blocks") continue;
    kinds.insert(run_backward(aft::dtype::f32, call, x).dw);
    sets.insert(e.functions->isa);
  }
  CHECK(kinds.size() == sets.size());
}
