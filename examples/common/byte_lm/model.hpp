// SPDX-License-Identifier: Apache-2.0
//
// A byte-level causal language model: embedding, pre-norm blocks of mixer and MLP, tied head.
#pragma once

#include "common/byte_lm/embedding.hpp"
#include "common/byte_lm/model_stream.hpp"
#include "common/blocks/block_stack.hpp"

namespace examples::byte_lm {

struct model_shape {
  mixer_kind mixer = mixer_kind::local;
  index_t context = 256;
  index_t channels = 192;
  index_t layers = 4;
  index_t heads = 6;
  index_t window = 32;
  bool tied_keys = true;
  index_t bias_rank = 0;  // full, local: of the factors of the position bias; 0: it is learned whole
};

template <class Real>
class model {
 public:
  /// `cut`: each of these ranks makes such a model, with a part of every sequence and all parameters, and makes the
  /// same calls; null: all is here. Refers to it. Throws user_error for a mixer that cannot be cut.
  model(const model_shape& shape, index_t max_batch, int threads, const ranks* cut = nullptr);

  /// The same seed gives the same model, whatever the mixer is, up to the mixer's own parameters.
  void initialize(std::uint64_t seed);

  /// Sum of -log p(next[i] | text[..i]) over all bytes, in nats. Of sequences that are cut, which have `context` bytes,
  /// every rank passes all and takes its part; losses and gradients are those of all and have the same bits on all
  /// ranks.
  double loss(sequences s, const std::uint8_t* text, const std::uint8_t* next);
  /// As above; every parameter's `grad` becomes the gradient of the mean.
  double loss_and_gradient(sequences s, const std::uint8_t* text, const std::uint8_t* next);
  /// What follows is for models of whole sequences: std::logic_error where others have parts.
  ///
  /// The logits that follow byte t of a text of `time` bytes, which are at most max_batch * context, and at most
  /// context unless the model is unlimited().
  void logits(index_t time, const std::uint8_t* text, index_t t, Real* out);

  /// Remembers a text of at most `context` bytes, or of any length if the model is unlimited().
  model_stream<Real> make_stream();
  bool unlimited() { return blocks_.mixer_of(0).unlimited(); }
  /// The logits that follow the stream's text and the next `count` bytes, of which 1 to context come in one call. As
  /// above up to rounding; the cost of a byte does not grow with the text for AFT's operators but full.
  void logits(model_stream<Real>& stream, const std::uint8_t* text, index_t count, Real* out);

  const parameter_list<Real>& parameters() const { return parameters_; }
  index_t parameter_count() const;
  const model_shape& shape() const { return shape_; }
  int threads() const { return exec_.threads; }
  /// Bytes of loss and gradients that came from other ranks in the last step, without those of the operators' calls.
  index_t received_sums() const { return received_sums_; }
  /// Seconds spent in the mixers' operators since the last call.
  double take_mixer_seconds() { return blocks_.take_mixer_seconds(); }
  parameter<Real>* position_bias(index_t layer) { return blocks_.mixer_of(layer).position_bias(); }

 private:
  const Real* run(sequences s, const std::uint8_t* text, model_stream<Real>* stream = nullptr);
  /// What this rank has of whole sequences; a part is copied, so that its rows follow each other.
  struct part {
    sequences s;
    const std::uint8_t* text;
    const std::uint8_t* next;
    std::vector<std::uint8_t> copies;
  };
  part part_of(sequences s, const std::uint8_t* text, const std::uint8_t* next) const;
  void complete_gradients();
  void require_whole() const;

  model_shape shape_;
  const ranks* cut_;
  metered_memory memory_;
  aft::cpu exec_;
  embedding<Real> embedding_;
  block_stack<Real> blocks_;
  buffer<Real> embedded_;
  buffer<Real> gradient_;
  parameter_list<Real> parameters_;
  index_t received_sums_ = 0;
};

extern template class model<float>;
extern template class model<double>;

}  // namespace examples::byte_lm
