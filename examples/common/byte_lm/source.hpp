// SPDX-License-Identifier: Apache-2.0
//
// What the bytes are that a model learns: a text's, or an image's pixels.
#pragma once

#include "common/support/buffer.hpp"
#include "common/training/checkpoint.hpp"

#include <cstdint>
#include <vector>

namespace examples::byte_lm {

/// Sequences one after the other, and the byte that follows each of theirs.
struct batch {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> next;
};

class source {
 public:
  virtual ~source() = default;

  /// Throws user_error if there are no sequences of `context` bytes, to learn from and held out.
  virtual void require(index_t context) const = 0;
  /// The sequences of one step, a function of (seed, step) only.
  virtual batch training_batch(std::uint64_t seed, std::uint64_t step, index_t sequences, index_t context) const = 0;
  virtual index_t held_out_sequences(index_t context) const = 0;
  virtual batch held_out_batch(index_t first, index_t sequences, index_t context) const = 0;

  /// A checkpoint resumes on its own data only.
  virtual std::uint64_t fingerprint() const = 0;
  /// Of the checkpoints of models that learn this.
  virtual file_format format() const = 0;
  /// The end of "it was made from another ...".
  virtual const char* name() const = 0;

 protected:
  source() = default;
  source(const source&) = default;
  source(source&&) = default;
  source& operator=(const source&) = default;
  source& operator=(source&&) = default;
};

}  // namespace examples::byte_lm
