// SPDX-License-Identifier: Apache-2.0
// random_calls FILE...        each file is an input
// random_calls FIRST COUNT    inputs made of the numbers FIRST .. FIRST + COUNT - 1; a wrong one is left as
// wrong-<number>
//
// libFuzzer is led by counters that depend on how threads meet, so that no two of its searches are the same one. A test
// has to be: here a failure belongs to the change that it is seen with.
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "check_call.hpp"

namespace {

using bytes = std::vector<std::uint8_t>;

bool is_number(const std::string& text, std::uint64_t& value) {
  const char* const end = text.data() + text.size();
  return std::from_chars(text.data(), end, value).ptr == end;
}

bytes read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Engines are specified to the bit, distributions are not.
bytes random_input(std::uint64_t number) {
  std::mt19937_64 random(number);
  // The options take about 40 bytes and every special value 4 to 6: from a call without any to about twenty.
  bytes input(40 + random() % 100);
  for (auto& x : input) x = static_cast<std::uint8_t>(random() >> 56);
  return input;
}

void write(const std::string& path, const bytes& input) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int wrong = 0;
  if (args.size() == 2 && is_number(args[0], first) && is_number(args[1], count)) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      const bytes input = random_input(i);
      // Before the call, for a sanitizer ends the process.
      write("trying", input);
      if (fuzz::check_call(input.data(), input.size())) continue;
      write("wrong-" + std::to_string(i), input);
      std::cerr << "in call " << i << std::endl;
      ++wrong;
    }
  } else {
    for (const std::string& path : args) {
      const bytes input = read(path);
      if (fuzz::check_call(input.data(), input.size())) continue;
      std::cerr << "in " << path << std::endl;
      ++wrong;
    }
  }
  return wrong == 0 ? 0 : 1;
}
