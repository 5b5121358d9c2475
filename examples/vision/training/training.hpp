// SPDX-License-Identifier: Apache-2.0
//
// One classifier on one set of images: steps, evaluation, checkpoints.
#pragma once

#include "vision/data/resize.hpp"
#include "vision/training/checkpoint.hpp"

namespace examples::vision {

/// What the test images were taken for.
struct evaluation {
  double bits = 0;                 // cross entropy an image
  index_t right = 0;               // images
  std::vector<index_t> confusion;  // (label, prediction), images
};

/// What the keys of a model look at on one test image.
struct looked_at {
  index_t label = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::vector<float>> layers;  // classifier::key_weights
};

class training {
 public:
  training(const training_settings& settings, const image_set& data, int threads);
  /// Goes on where the checkpoint ends. Throws user_error if it does not fit or is of other images.
  training(const checkpoint& from, const image_set& data, int threads);

  /// Takes weights of another model, before the first step; returns of how many tensors. Throws user_error.
  index_t begin_with(const std::filesystem::path& weights, const std::filesystem::path& names);

  /// One step; returns the training loss in bits an image.
  double step();
  bool finished() const { return steps_done() >= settings_.steps; }
  std::int64_t steps_done() const { return optimizer_.steps_done(); }

  evaluation test();
  /// The test images with more or fewer pixels, so that their patches are a grid of rows x columns. Only a model
  /// without position embedding has weights for that.
  evaluation test_on_grid(index_t rows, index_t columns);
  /// Of up to `count` test images, each of another class, in their order; none for mixers without keys for each head.
  std::vector<looked_at> look(index_t count);
  void save(const std::filesystem::path& path);

  const training_settings& settings() const { return settings_; }
  const history& past() const { return history_; }
  classifier<float>& network() { return model_; }
  /// Milliseconds of the median step since this object was made: of the whole, and of the mixers' operators.
  double step_milliseconds() const;
  double mixer_milliseconds() const;

 private:
  evaluation evaluate(classifier<float>& model, pixel_grid size) const;

  training_settings settings_;
  const image_set& data_;
  std::uint64_t fingerprint_;
  classifier<float> model_;
  optimizer optimizer_;
  history history_;
  std::vector<double> step_seconds_;
  std::vector<double> mixer_seconds_;
};

}  // namespace examples::vision
