// SPDX-License-Identifier: Apache-2.0

#include "common/support/atomic_file.hpp"

#include "common/support/user_error.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace examples {

atomic_file::atomic_file(std::filesystem::path target) : target_(std::move(target)) {
  // In the same directory: a rename across file systems is a copy, and no longer atomic.
  aside_ = target_;
  aside_ += ".part-" + std::to_string(getpid());
  descriptor_ = open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("cannot be created");
}

atomic_file::~atomic_file() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(aside_.c_str());
}

void atomic_file::append(const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot be written");
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void atomic_file::commit() {
  if (fsync(descriptor_) != 0) fail("cannot be written");
  if (rename(aside_.c_str(), target_.c_str()) != 0) fail("cannot be replaced");
  close(descriptor_);
  descriptor_ = -1;
  // The rename itself is on the disk only with its directory. Some file systems refuse to sync one: the new
  // file is complete either way.
  const std::filesystem::path parent = target_.has_parent_path() ? target_.parent_path() : ".";
  const int directory = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
}

void atomic_file::fail(const char* what) const {
  throw user_error(target_.string() + " " + what + ": " + std::strerror(errno));
}

}  // namespace examples
