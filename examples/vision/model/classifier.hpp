// SPDX-License-Identifier: Apache-2.0
//
// An image classifier: patches, pre-norm blocks of mixer and MLP, global average pooling, a linear head. AFT-conv has
// no position embedding, as in the papers; the other mixers have a learned one.
#pragma once

#include "common/blocks/block_stack.hpp"
#include "vision/model/patch_embedding.hpp"
#include "vision/model/pooled_head.hpp"

namespace examples::vision {

struct classifier_shape {
  mixer_kind mixer = mixer_kind::conv2d;
  index_t rows = 28;     // pixels
  index_t columns = 28;  // pixels
  index_t patch = 2;
  index_t channels = 32;
  index_t layers = 4;
  index_t heads = 32;
  index_t window = 11;  // conv2d: taps an axis; local: |t - s| < window
  index_t classes = 10;
  filter_choices filter = {};  // conv2d
  index_t bias_rank = 0;       // full, local: of the factors of the position bias; 0: it is learned whole
  patch_grid grid() const { return {rows / patch, columns / patch, patch}; }
};

template <class Real>
class classifier {
 public:
  classifier(const classifier_shape& shape, index_t max_batch, int threads);

  /// The same seed gives the same model, whatever the mixer is, up to its own parameters and the position embedding.
  void initialize(std::uint64_t seed);

  /// What is random in a step, a function of both; settle() before the model is tested.
  void draw(std::uint64_t seed, std::uint64_t step) { blocks_.draw(seed, step); }
  void settle() { blocks_.settle(); }

  /// Sum of -log p(label) over all images, in nats. pixels (batch, rows, columns).
  double loss(index_t batch, const float* pixels, const std::uint8_t* labels);
  /// As above; every parameter's `grad` becomes the gradient of the mean.
  double loss_and_gradient(index_t batch, const float* pixels, const std::uint8_t* labels);
  /// Of the last call, (batch, classes).
  const Real* logits() const { return head_.logits(); }

  /// exp(k) of the last call's image, (heads, positions), over the largest of its head: by what AFT Eq. 2 weighs a
  /// position beside its bias. Nothing for mixers whose heads have no key of their own.
  std::vector<float> key_weights(index_t layer, index_t image);

  const parameter_list<Real>& parameters() const { return parameters_; }
  index_t parameter_count() const;
  const classifier_shape& shape() const { return shape_; }
  int threads() const { return exec_.threads; }
  double take_mixer_seconds() { return blocks_.take_mixer_seconds(); }
  mixer<Real>& mixer_of(index_t layer) { return blocks_.mixer_of(layer); }

 private:
  sequences sequences_of(index_t batch) const { return {batch, shape_.grid().count()}; }

  classifier_shape shape_;
  metered_memory memory_;
  aft::cpu exec_;
  patch_embedding<Real> embedding_;
  block_stack<Real> blocks_;
  pooled_head<Real> head_;
  buffer<Real> embedded_;
  buffer<Real> gradient_;
  parameter_list<Real> parameters_;
};

extern template class classifier<float>;
extern template class classifier<double>;

}  // namespace examples::vision
