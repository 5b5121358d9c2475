// SPDX-License-Identifier: Apache-2.0
//
// What a model writes: byte after byte, each drawn from the softmax of logits / temperature.
#pragma once

#include "common/byte_lm/model.hpp"

#include <string>

namespace examples::byte_lm {

/// Where the logits of the next byte come from: both give the same text, up to the rounding of the logits.
enum class decoding {
  stream,    ///< from what the layers remember: a byte goes through the model once
  recompute  ///< from the whole text before it: what a model without streams has to do
};

struct writing {
  double temperature = 1;
  std::uint64_t seed = 1;  // the same draws the same bytes from the same logits
  bool restart = false;    // also of a model that is unlimited()
  decoding how = decoding::stream;
};

/// A model that is unlimited() goes on from all of its text. Another one has a place for `context` bytes: when they are
/// full it begins again with the latter half of them, so that each byte follows at least half a context and, by
/// streams, costs as much as two.
template <class Real>
class writer {
 public:
  /// Goes on from the prompt, which is not empty. Refers to the model.
  writer(model<Real>& network, const std::string& prompt, const writing& how);

  /// Writes one more byte. Throws std::length_error where recomputing needs more rows than the model has room for.
  std::uint8_t next();

  /// What was written, without the prompt.
  std::string text() const;
  /// The logits that the last byte was drawn from.
  const buffer<Real>& logits() const { return logits_; }
  /// Bytes that the streams remember of the text, in all layers.
  index_t state_bytes() const { return stream_.bytes(); }

 private:
  void go_on();
  std::uint8_t draw();

  model<Real>& model_;
  std::vector<std::uint8_t> bytes_;
  std::size_t prompt_size_;
  writing how_;
  random_stream random_;
  model_stream<Real> stream_;
  buffer<Real> logits_;
  buffer<double> sums_;
  index_t begin_ = 0;  // of what the model sees of bytes_
};

/// Seconds that the logits of one byte take with a full context, either way: the shortest of a few, which is what it
/// takes where nothing else runs.
struct decoding_seconds {
  double stream = 0;
  double recompute = 0;
};
decoding_seconds measure_decoding(model<float>& network);

extern template class writer<float>;
extern template class writer<double>;

}  // namespace examples::byte_lm
