// SPDX-License-Identifier: Apache-2.0
//
// Images as sequences of their pixels, row after row: what a model of bytes continues.
#pragma once

#include "common/byte_lm/source.hpp"
#include "vision/data/image_set.hpp"

namespace examples::vision {

/// A sequence is one image. Its first pixel follows a black one, so that every pixel is said by those before it.
class pixel_rows final : public byte_lm::source {
 public:
  /// Refers to the images.
  explicit pixel_rows(const image_set& images);

  index_t length() const { return images_.training().rows * images_.training().columns; }
  /// The bytes before the pixels from `first` on, of a test image: what a writer goes on from.
  std::vector<std::uint8_t> beginning(index_t image, index_t first) const;
  /// All pixels of a test image.
  std::vector<std::uint8_t> whole(index_t image) const;
  /// The first test image of every class, in their order.
  std::vector<index_t> one_of_each() const;

  /// `context` has to be length().
  void require(index_t context) const override;
  byte_lm::batch training_batch(std::uint64_t seed, std::uint64_t step, index_t sequences,
                                index_t context) const override;
  index_t held_out_sequences(index_t context) const override;
  byte_lm::batch held_out_batch(index_t first, index_t sequences, index_t context) const override;
  std::uint64_t fingerprint() const override { return fingerprint_; }
  file_format format() const override { return checkpoints; }
  const char* name() const override { return "set of images than --data, --images and --test-images name"; }

  static constexpr file_format checkpoints{"aft vision pixels 1", "data_fnv1a"};

 private:
  static void append(const labelled_images& from, index_t image, byte_lm::batch& to);

  const image_set& images_;
  std::uint64_t fingerprint_;
};

}  // namespace examples::vision
