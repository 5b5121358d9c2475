// SPDX-License-Identifier: Apache-2.0

#include "vision/data/idx.hpp"

#include "common/support/user_error.hpp"

#include <algorithm>
#include <string>
#include <zlib.h>

namespace examples::vision {

namespace {

constexpr std::uint8_t type_of_bytes = 0x08;
// More is no set of images that this program can learn from, but a damaged header may say so.
constexpr index_t most_values = index_t{1} << 33;
constexpr std::size_t chunk = std::size_t{1} << 20;

/// zlib reads files that are not compressed as they are.
class compressed_file {
 public:
  explicit compressed_file(const std::filesystem::path& file)
      : name_(file.string()), handle_(gzopen(file.c_str(), "rb")) {
    if (handle_ == nullptr) fail("cannot be opened");
  }
  compressed_file(const compressed_file&) = delete;
  compressed_file& operator=(const compressed_file&) = delete;
  ~compressed_file() { gzclose(handle_); }

  /// Up to `count` bytes: fewer at the end of the file, or of what is left of a compressed one.
  std::size_t read(std::uint8_t* to, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const int now = gzread(handle_, to + done, static_cast<unsigned>(std::min(chunk, count - done)));
      if (now < 0) fail_unless_truncated();
      if (now <= 0) break;
      done += static_cast<std::size_t>(now);
    }
    return done;
  }
  /// Whether all of it was there: a compressed file that was cut off may end within its checksum only.
  bool whole() const {
    int status = Z_OK;
    gzerror(handle_, &status);
    return status == Z_OK || status == Z_STREAM_END;
  }
  [[noreturn]] void fail(const std::string& what) const { throw user_error("image data " + name_ + ": " + what); }

 private:
  void fail_unless_truncated() const {
    int status = Z_OK;
    const std::string text = gzerror(handle_, &status);
    if (status != Z_BUF_ERROR) fail("cannot be read: " + text);
  }
  std::string name_;
  gzFile handle_;
};

}  // namespace

idx_array read_idx(const std::filesystem::path& file, std::size_t rank) {
  compressed_file in(file);
  std::uint8_t magic[4] = {};
  if (in.read(magic, 4) < 4) in.fail("too short to be an IDX file");
  if (magic[0] != 0 || magic[1] != 0) in.fail("not an IDX file: it does not begin with two zeros");
  if (magic[2] != type_of_bytes) in.fail("type " + std::to_string(magic[2]) + ", expected 8, unsigned bytes");
  if (magic[3] != rank)
    in.fail("rank " + std::to_string(magic[3]) + ", expected " + std::to_string(rank) +
            (rank == 1 ? ", labels" : ", images"));
  idx_array result;
  index_t total = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    std::uint8_t b[4] = {};
    if (in.read(b, 4) < 4) in.fail("truncated within its header");
    const auto extent = static_cast<index_t>((std::uint32_t{b[0]} << 24U) | (std::uint32_t{b[1]} << 16U) |
                                             (std::uint32_t{b[2]} << 8U) | std::uint32_t{b[3]});
    if (extent == 0) in.fail("holds no data: an extent is 0");
    if (extent > most_values / total) in.fail("claims more values than there can be");
    result.shape.push_back(extent);
    total *= extent;
  }
  // Piece by piece: memory is taken for what is there, not for what a header claims.
  const auto count = static_cast<std::size_t>(total);
  while (result.values.size() < count) {
    const std::size_t done = result.values.size();
    const std::size_t next = std::min(chunk, count - done);
    result.values.resize(done + next);
    const std::size_t got = in.read(result.values.data() + done, next);
    if (got < next)
      in.fail("truncated: " + std::to_string(done + got) + " of " + std::to_string(count) + " values are there");
  }
  std::uint8_t more = 0;
  if (in.read(&more, 1) > 0) in.fail("goes on behind its " + std::to_string(count) + " values");
  if (!in.whole()) in.fail("truncated: its checksum is not there");
  return result;
}

}  // namespace examples::vision
