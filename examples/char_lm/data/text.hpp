// SPDX-License-Identifier: Apache-2.0
//
// The bytes that are learned from: the last tenth is held out.
#pragma once

#include "common/byte_lm/source.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples::char_lm {

class text final : public byte_lm::source {
 public:
  using batch = byte_lm::batch;

  /// Throws user_error if the file is missing, empty or cannot be read.
  static text read(const std::filesystem::path& file);
  explicit text(std::vector<std::uint8_t> bytes);

  /// Throws user_error if either part is shorter than a sequence of `context` bytes and the byte after it.
  void require(index_t context) const override;

  /// Random sequences of the training part.
  batch training_batch(std::uint64_t seed, std::uint64_t step, index_t sequences, index_t context) const override;

  /// The held-out part cut into sequences one after the other; the rest that fills none is left out.
  index_t held_out_sequences(index_t context) const override;
  batch held_out_batch(index_t first, index_t sequences, index_t context) const override;

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  index_t distinct() const;
  /// FNV-1a of all bytes.
  std::uint64_t fingerprint() const override;
  file_format format() const override { return checkpoints; }
  const char* name() const override { return "text than --text"; }

  static constexpr file_format checkpoints{"aft char_lm 1", "text_fnv1a"};

 private:
  std::vector<std::uint8_t> bytes_;
  index_t training_;
};

/// Bits per byte that remain when the `order` bytes before are known, from the text's own counts:
/// order 0 is the entropy of single bytes, order 1 the conditional entropy H(next | byte).
double entropy(const std::vector<std::uint8_t>& bytes, int order);

}  // namespace examples::char_lm
