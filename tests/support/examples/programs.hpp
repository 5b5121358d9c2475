// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the examples' programs need: files in a place of their own, and what a command says.
#pragma once

#include "common/training/safetensors.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace examples::test {

/// A directory of this test's own, gone when it ends.
class scratch_directory {
 public:
  scratch_directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "aft-example-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

/// The tensors of a file, to be written again.
inline std::vector<safetensors::source> sources_of(const safetensors::file& file) {
  std::vector<safetensors::source> sources;
  for (const auto& [name, t] : file.tensors())
    sources.push_back(
        {name, t.type == "F32" ? safetensors::dtype::f32 : safetensors::dtype::f64, t.shape, file.data(t)});
  return sources;
}

/// What a shell command prints to the chosen stream, and its exit status.
struct outcome {
  int status = -1;
  std::string output;
};
inline outcome run_command(const std::string& command) {
  outcome result;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  char chunk[4096];
  while (const std::size_t n = std::fread(chunk, 1, sizeof chunk, pipe)) result.output.append(chunk, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace examples::test
