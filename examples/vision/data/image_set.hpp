// SPDX-License-Identifier: Apache-2.0
//
// Grey images with a label each: those to learn from and those to test with.
#pragma once

#include "common/support/buffer.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples::vision {

/// Images of one size, one after the other, and their labels.
struct labelled_images {
  index_t count = 0;
  index_t rows = 0;
  index_t columns = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
};

class image_set {
 public:
  /// Reads train-images, train-labels, t10k-images and t10k-labels with the endings -idx3-ubyte and -idx1-ubyte, and
  /// .gz behind them or not. Keeps the first `training` and `test` of them, all if 0. Throws user_error if a file is
  /// missing or damaged, if they do not fit together, or if there are fewer.
  static image_set read(const std::filesystem::path& directory, index_t training, index_t test);
  /// Throws user_error if there is a test label that no training image has, or nothing but one label.
  image_set(labelled_images training, labelled_images test);

  /// The images of one call: pixels with the training images' mean 0 and deviation 1.
  struct batch {
    std::vector<float> pixels;
    std::vector<std::uint8_t> labels;
    index_t count() const { return static_cast<index_t>(labels.size()); }
  };
  /// The images of a step: those from step * count on in an endless sequence of all training images, again and again
  /// in another order; a function of (seed, step) only.
  batch training_batch(std::uint64_t seed, std::uint64_t step, index_t count) const;
  batch test_batch(index_t first, index_t count) const;

  const labelled_images& training() const { return training_; }
  const labelled_images& test() const { return test_; }
  index_t classes() const { return classes_; }
  /// FNV-1a of all pixels and labels: a checkpoint resumes on its own images only.
  std::uint64_t fingerprint() const;

 private:
  void append(const labelled_images& from, index_t at, batch& to) const;
  const std::vector<std::uint32_t>& order(std::uint64_t seed, std::uint64_t epoch) const;

  labelled_images training_;
  labelled_images test_;
  index_t classes_ = 0;
  float mean_ = 0;
  float scale_ = 1;
  // The order that was asked for last: a step needs the one of the step before, nearly always.
  mutable std::vector<std::uint32_t> order_;
  mutable std::uint64_t order_seed_ = 0;
  mutable std::uint64_t order_epoch_ = 0;
};

}  // namespace examples::vision
