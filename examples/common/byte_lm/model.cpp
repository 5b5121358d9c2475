// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/model.hpp"

#include <stdexcept>

namespace examples::byte_lm {

namespace {

mixer_shape mixer_shape_of(const model_shape& shape, index_t max_batch, const ranks* cut) {
  return {.channels = shape.channels,
          .heads = shape.heads,
          .context = shape.context,
          .max_batch = max_batch,
          .window = shape.window,
          .tied_keys = shape.tied_keys,
          .bias_rank = shape.bias_rank,
          .cut = cut};
}

}  // namespace

template <class Real>
model<Real>::model(const model_shape& shape, index_t max_batch, int threads, const ranks* cut)
    : shape_(shape),
      cut_(cut),
      exec_{threads, &memory_},
      embedding_(shape.channels, shape.context, mixer_shape_of(shape, max_batch, cut).rows()),
      blocks_(shape.mixer, mixer_shape_of(shape, max_batch, cut), shape.layers, vocabulary, threads),
      embedded_(mixer_shape_of(shape, max_batch, cut).rows() * shape.channels),
      gradient_(embedded_.size()) {
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
  if (stream != nullptr) s.first = stream->position;
  embedding_.forward(s, text, embedded_.data(), exec_.threads);
  return blocks_.forward(s, embedded_.data(), exec_, stream == nullptr ? nullptr : &stream->layers);
}

template <class Real>
typename model<Real>::part model<Real>::part_of(sequences s, const std::uint8_t* text, const std::uint8_t* next) const {
  if (cut_ == nullptr) return {s, text, next, {}};
  if (s.time != shape_.context) throw std::logic_error("model: a short sequence that is cut");
  const positions own = cut_->own_part(s.time);
  part result{{s.batch, own.count, own.first, s.time}, nullptr, nullptr, {}};
  std::vector<std::uint8_t>& bytes = result.copies;
  for (const std::uint8_t* all : {text, next})
    for (index_t b = 0; b < s.batch; ++b)
      bytes.insert(bytes.end(), all + b * s.time + own.first, all + b * s.time + own.first + own.count);
  result.text = bytes.data();
  result.next = bytes.data() + result.s.rows();
  return result;
}

template <class Real>
double model<Real>::loss(sequences s, const std::uint8_t* text, const std::uint8_t* next) {
  const part own = part_of(s, text, next);
  double total = embedding_.loss(own.s, run(own.s, own.text), own.next, blocks_.work(), exec_.threads);
  if (cut_ != nullptr) cut_->add_up(std::span(&total, 1));
  return total;
}

template <class Real>
double model<Real>::loss_and_gradient(sequences s, const std::uint8_t* text, const std::uint8_t* next) {
  const part own = part_of(s, text, next);
  const Real* x = run(own.s, own.text);
  Real* d = gradient_.data();
  double total = embedding_.loss_and_gradient(own.s, x, own.next, d, blocks_.work(), exec_.threads);
  blocks_.backward(own.s, embedded_.data(), d, exec_);
  embedding_.backward(own.s, own.text, d, exec_.threads);
  if (cut_ == nullptr) return total;
  const index_t before = cut_->received();
  cut_->add_up(std::span(&total, 1));
  complete_gradients();
  received_sums_ = cut_->received() - before;
  return total;
}

template <class Real>
void model<Real>::complete_gradients() {
  if (cut_->size() == 1) return;
  // All sums in a few long messages: most parameters are so short that a message each would be all they cost.
  std::vector<Real> terms;
  for (parameter<Real>* p : parameters_) {
    if (p->rank_has == share::terms) terms.insert(terms.end(), p->grad.begin(), p->grad.end());
    if (p->rank_has == share::rows) cut_->share_rows(p->grad.data(), p->shape[0], p->count() / p->shape[0]);
  }
  cut_->add_up(std::span(terms));
  auto sum = terms.cbegin();
  for (parameter<Real>* p : parameters_) {
    if (p->rank_has != share::terms) continue;
    std::copy(sum, sum + p->count(), p->grad.begin());
    sum += p->count();
  }
}

template <class Real>
void model<Real>::require_whole() const {
  if (cut_ != nullptr && cut_->size() > 1) throw std::logic_error("model: only losses of cut sequences");
}

template <class Real>
void model<Real>::logits(index_t time, const std::uint8_t* text, index_t t, Real* out) {
  require_whole();
  const index_t most = unlimited() ? embedded_.size() / shape_.channels : shape_.context;
  if (time > most)
    throw std::length_error("model: " + std::to_string(time) + " bytes are more than the " + std::to_string(most) +
                            " that there is room for");
  embedding_.logits(t, run({1, time}, text), out);
}

template <class Real>
model_stream<Real> model<Real>::make_stream() {
  require_whole();
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
