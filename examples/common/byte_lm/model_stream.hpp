// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/mixers/mixer.hpp"

#include <vector>

namespace examples::byte_lm {

/// What a model remembers of one text that comes in parts: model::make_stream makes it, model::logits goes on from it.
template <class Real>
struct model_stream {
  index_t position = 0;                                     // bytes seen
  std::vector<std::unique_ptr<mixer_stream<Real>>> layers;  // one a block

  /// The text begins again.
  void reset() {
    position = 0;
    for (const auto& layer : layers) layer->reset();
  }
  /// Bytes of memory, in all layers.
  index_t bytes() const {
    index_t sum = 0;
    for (const auto& layer : layers) sum += layer->bytes();
    return sum;
  }
};

}  // namespace examples::byte_lm
