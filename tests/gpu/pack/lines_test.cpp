// SPDX-License-Identifier: Apache-2.0
// What aft_gpu_check does without a GPU: lines of results that are whole whoever writes beside them, and cuBLAS as it
// is found when the program runs.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gpu/cublas.hpp"
#include "gpu/json_lines.hpp"

using namespace aft::gpu;

namespace {

const std::string file = std::string(AFT_LINES_FOLDER) + "/lines.jsonl";

std::vector<std::string> lines() {
  std::ifstream in(file);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}
bool has(const std::string& line) {
  for (const std::string& each : lines())
    if (each.starts_with(line)) return true;
  return false;
}

}  // namespace

TEST_CASE("lines: a line has the stage and what was written, and nothing that JSON forbids") {
  unlink(file.c_str());
  write_line("\"lost\": 1");  // no file yet
  open_lines(file.c_str(), "a \"stage\"");
  write_line("\"text\": " + quoted("back\\slash\tand\nmore"));
  CHECK(lines() == std::vector<std::string>{R"({"stage": "a \"stage\"", "text": "back\\slash and more"})"});
}

TEST_CASE("lines: \"cases\" write when they begin and when they end") {
  CHECK(has(R"({"stage": "a \"stage\"", "begins": "lines: \"cases\" write when they begin and when they end"})"));
  CHECK(has(R"({"stage": "a \"stage\"", "test": "lines: a line has the stage and what was written, and nothing that )"
            R"(JSON forbids", "passed": true, "failed_checks": 0, "checks": 1, "seconds": )"));
  CHECK(cases_run() == 1);
}

TEST_CASE("lines: of several programs at once are whole, and all there") {
  constexpr int programs = 4, count = 50;
  const std::size_t before = lines().size();
  for (int program = 0; program < programs; ++program)
    if (fork() == 0) {
      for (int i = 0; i < count; ++i)
        write_line("\"n\": " + std::to_string(program * count + i) + ", \"text\": " + quoted(std::string(3000, 'x')));
      _exit(0);
    }
  for (int program = 0; program < programs; ++program) wait(nullptr);
  const std::vector<std::string> all = lines();
  CHECK(all.size() == before + programs * count);
  std::set<int> seen;
  for (std::size_t i = before; i < all.size(); ++i) {
    const std::string start = "{\"stage\": \"a \\\"stage\\\"\", \"n\": ";
    REQUIRE(all[i].starts_with(start));
    CHECK(all[i].ends_with("xxx\"}"));
    seen.insert(std::atoi(all[i].c_str() + start.size()));
  }
  CHECK(seen.size() == programs * count);
}

// The library is looked for once, so this is one case.
TEST_CASE("cublas: the library that is named is loaded, and multiplies what it is asked to") {
  setenv("AFT_CUBLAS", AFT_RECORDING_CUBLAS, 1);
  std::string why;
  const cublas* const library = cublas::loaded(why);
  REQUIRE(library != nullptr);
  const char a = 0, b = 0;
  char c[160] = {};
  library->multiply(true, 3, 5, &a, &b, c, nullptr);
  // Column-major (5, 3) = (5, 3) (3, 3), in bfloat16 with float sums.
  CHECK(std::string(c) == "ops 0 0, sizes 5 3 3, types 14 14 14, strides 5 3 5, one 1, zero 0, sums 68, b first: " +
                              std::to_string(reinterpret_cast<std::uintptr_t>(&b)));
  library->multiply(false, 4, 2, &a, &b, c, nullptr);
  CHECK(std::string(c).starts_with("ops 0 0, sizes 2 4 4, types 0 0 0, strides 2 4 2,"));
  CHECK_THROWS_WITH(library->multiply(false, 4, -1, &a, &b, c, nullptr), "a product of cuBLAS: status 7");
}
