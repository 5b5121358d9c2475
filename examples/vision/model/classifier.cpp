// SPDX-License-Identifier: Apache-2.0

#include "vision/model/classifier.hpp"

#include <algorithm>
#include <cmath>

namespace examples::vision {

namespace {

mixer_shape mixer_shape_of(const classifier_shape& s, index_t max_batch) {
  return {.channels = s.channels,
          .heads = s.heads,
          .context = s.grid().count(),
          .max_batch = max_batch,
          .window = s.window,
          .tied_keys = true,
          .causal = false,
          .columns = s.grid().columns,
          .filter = s.filter,
          .bias_rank = s.bias_rank};
}

}  // namespace

template <class Real>
classifier<Real>::classifier(const classifier_shape& shape, index_t max_batch, int threads)
    : shape_(shape),
      exec_{threads, &memory_},
      embedding_(shape.grid(), shape.channels, shape.mixer != mixer_kind::conv2d, max_batch),
      blocks_(shape.mixer, mixer_shape_of(shape, max_batch), shape.layers, shape.channels, threads),
      head_(shape.channels, shape.classes, shape.grid().count(), max_batch),
      embedded_(max_batch * shape.grid().count() * shape.channels),
      gradient_(embedded_.size()) {
  embedding_.collect(parameters_);
  blocks_.collect(parameters_);
  head_.collect(parameters_);
}

template <class Real>
void classifier<Real>::initialize(std::uint64_t seed) {
  const auto normal = [&](parameter<Real>& p, std::uint64_t place, double deviation) {
    p.fill_normal(random_stream(seed, purpose::initial + place), deviation);
  };
  normal(embedding_.weight, 0, 1 / std::sqrt(static_cast<double>(shape_.grid().pixels())));
  normal(embedding_.positions, 1, 0.02);
  // The head starts at 0: every class is as likely as another.
  blocks_.initialize(seed, 2);
}

template <class Real>
double classifier<Real>::loss(index_t batch, const float* pixels, const std::uint8_t* labels) {
  embedding_.forward(batch, pixels, embedded_.data(), exec_.threads);
  const Real* x = blocks_.forward(sequences_of(batch), embedded_.data(), exec_);
  return head_.loss(batch, x, labels, exec_.threads);
}

template <class Real>
double classifier<Real>::loss_and_gradient(index_t batch, const float* pixels, const std::uint8_t* labels) {
  const sequences s = sequences_of(batch);
  embedding_.forward(batch, pixels, embedded_.data(), exec_.threads);
  const Real* x = blocks_.forward(s, embedded_.data(), exec_);
  Real* d = gradient_.data();
  const double total = head_.loss_and_gradient(batch, x, labels, d, blocks_.work(), exec_.threads);
  blocks_.backward(s, embedded_.data(), d, exec_);
  embedding_.backward(batch, d, exec_.threads);
  return total;
}

template <class Real>
std::vector<float> classifier<Real>::key_weights(index_t layer, index_t image) {
  mixer<Real>& mix = mixer_of(layer);
  const typename mixer<Real>::column_range keys = mix.head_keys();
  const index_t positions = shape_.grid().count(), width = mix.input_width();
  const Real* first = blocks_.projected_of(layer) + image * positions * width + keys.first;
  std::vector<float> weights;
  for (index_t h = 0; h < keys.count; ++h) {
    Real most = first[h];
    for (index_t t = 1; t < positions; ++t) most = std::max(most, first[t * width + h]);
    for (index_t t = 0; t < positions; ++t)
      weights.push_back(static_cast<float>(std::exp(first[t * width + h] - most)));
  }
  return weights;
}

template <class Real>
index_t classifier<Real>::parameter_count() const {
  index_t n = 0;
  for (const parameter<Real>* p : parameters_) n += p->count();
  return n;
}

template class classifier<float>;
template class classifier<double>;

}  // namespace examples::vision
