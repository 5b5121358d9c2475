// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/model.hpp"

#include <stdexcept>

namespace examples::byte_lm {

namespace {

mixer_shape mixer_shape_of(const model_shape& shape, index_t max_batch) {
  return {.channels = shape.channels,
          .heads = shape.heads,
          .context = shape.context,
          .max_batch = max_batch,
          .window = shape.window,
          .tied_keys = shape.tied_keys,
          .bias_rank = shape.bias_rank};
}

}  // namespace

template <class Real>
model<Real>::model(const model_shape& shape, index_t max_batch, int threads)
    : shape_(shape),
      exec_{threads, &memory_},
      embedding_(shape.channels, shape.context, max_batch * shape.context),
      blocks_(shape.mixer, mixer_shape_of(shape, max_batch), shape.layers, vocabulary, threads),
      embedded_(max_batch * shape.context * shape.channels),
      gradient_(max_batch * shape.context * shape.channels) {
  embedding_.collect(parameters_);
  blocks_.collect(parameters_);
}

template <class Real>
void model<Real>::initialize(std::uint64_t seed) {
  embedding_.bytes.fill_normal(random_stream(seed, purpose::initial), 0.02);
  embedding_.positions.fill_normal(random_stream(seed, purpose::initial + 1), 0.02);
  blocks_.initialize(seed, 2);
}

template <class Real>
const Real* model<Real>::run(sequences s, const std::uint8_t* text, model_stream<Real>* stream) {
  embedding_.forward(s, stream == nullptr ? 0 : stream->position, text, embedded_.data(), exec_.threads);
  return blocks_.forward(s, embedded_.data(), exec_, stream == nullptr ? nullptr : &stream->layers);
}

template <class Real>
double model<Real>::loss(sequences s, const std::uint8_t* text, const std::uint8_t* next) {
  return embedding_.loss(s, run(s, text), next, blocks_.work(), exec_.threads);
}

template <class Real>
double model<Real>::loss_and_gradient(sequences s, const std::uint8_t* text, const std::uint8_t* next) {
  const Real* x = run(s, text);
  Real* d = gradient_.data();
  const double total = embedding_.loss_and_gradient(s, x, next, d, blocks_.work(), exec_.threads);
  blocks_.backward(s, embedded_.data(), d, exec_);
  embedding_.backward(s, text, d, exec_.threads);
  return total;
}

template <class Real>
void model<Real>::logits(index_t time, const std::uint8_t* text, index_t t, Real* out) {
  const index_t most = unlimited() ? embedded_.size() / shape_.channels : shape_.context;
  if (time > most)
    throw std::length_error("model: " + std::to_string(time) + " bytes are more than the " + std::to_string(most) +
                            " that there is room for");
  embedding_.logits(t, run({1, time}, text), out);
}

template <class Real>
model_stream<Real> model<Real>::make_stream() {
  model_stream<Real> result;
  for (index_t layer = 0; layer < blocks_.layers(); ++layer)
    result.layers.push_back(blocks_.mixer_of(layer).make_stream(1));
  return result;
}

template <class Real>
void model<Real>::logits(model_stream<Real>& stream, const std::uint8_t* text, index_t count, Real* out) {
  const Real* x = run({1, count}, text, &stream);
  stream.position += count;
  embedding_.logits(count - 1, x, out);
}

template <class Real>
index_t model<Real>::parameter_count() const {
  index_t n = 0;
  for (const parameter<Real>* p : parameters_) n += p->count();
  return n;
}

template class model<float>;
template class model<double>;

}  // namespace examples::byte_lm
