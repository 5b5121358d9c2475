// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>

namespace examples {

/// A file that takes the place of the old one only when all of it is on the disk. Throws user_error; a file
/// that was not committed is removed.
class atomic_file {
 public:
  explicit atomic_file(std::filesystem::path target);
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  ~atomic_file();

  void append(const char* data, std::size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path target_;
  std::filesystem::path aside_;
  int descriptor_ = -1;
};

}  // namespace examples
