// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: 8 bytes of little-endian header length, a JSON header, raw little-endian data.
#pragma once

#include "common/support/buffer.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace examples::safetensors {

using metadata = std::map<std::string, std::string>;

enum class dtype { f32, f64 };

/// An array to be written. The data stay where they are.
struct source {
  std::string name;
  dtype type;
  std::vector<index_t> shape;
  const void* data;
};

/// A checked file, in memory.
class file {
 public:
  struct tensor {
    std::string type;
    std::vector<index_t> shape;
    std::size_t offset;
    std::size_t bytes;
  };

  /// Throws user_error that says what is wrong with the file, down to one flipped bit if it has a checksum.
  static file read(const std::filesystem::path& path);
  /// As those that `write` makes; files of other programs have none.
  bool has_checksum() const;

  const metadata& header() const { return metadata_; }
  const std::map<std::string, tensor>& tensors() const { return tensors_; }
  const char* data(const tensor& t) const { return data_.data() + t.offset; }

 private:
  void parse_header(const std::string& json);
  void check_layout() const;

  metadata metadata_;
  std::map<std::string, tensor> tensors_;
  std::string data_;
};

/// Writes beside `path` and renames, so that a crash or a full disk leaves the old file as it was.
/// Throws user_error.
void write(const std::filesystem::path& path, const metadata& header, const std::vector<source>& tensors);

}  // namespace examples::safetensors
