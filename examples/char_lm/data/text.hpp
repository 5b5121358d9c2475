// SPDX-License-Identifier: Apache-2.0
//
// The bytes that are learned from: the last tenth is held out.
#pragma once

#include "common/support/buffer.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples::char_lm {

class text {
 public:
  /// Throws user_error if the file is missing, empty or cannot be read.
  static text read(const std::filesystem::path& file);
  explicit text(std::vector<std::uint8_t> bytes);

  /// Throws user_error if either part is shorter than a sequence of `context` bytes and the byte after it.
  void require(index_t context) const;

  /// Random sequences of the training part for one step, a function of (seed, step) only.
  struct batch {
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> next;
  };
  batch training_batch(std::uint64_t seed, std::uint64_t step, index_t sequences, index_t context) const;

  /// The held-out part cut into sequences one after the other; the rest that fills none is left out.
  index_t held_out_sequences(index_t context) const;
  batch held_out_batch(index_t first, index_t sequences, index_t context) const;

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  index_t distinct() const;
  /// FNV-1a of all bytes: a checkpoint resumes on its own text only.
  std::uint64_t fingerprint() const;

 private:
  std::vector<std::uint8_t> bytes_;
  index_t training_;
};

/// Bits per byte that remain when the `order` bytes before are known, from the text's own counts:
/// order 0 is the entropy of single bytes, order 1 the conditional entropy H(next | byte).
double entropy(const std::vector<std::uint8_t>& bytes, int order);

}  // namespace examples::char_lm
