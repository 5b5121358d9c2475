// SPDX-License-Identifier: Apache-2.0
//
// Attention's key-value cache: what the AFT mixers' slots are compared with.
#pragma once

#include "common/mixers/mixer.hpp"
#include "common/support/simd.hpp"

#include <limits>

namespace examples {

/// Keys and values of the first `context` rows of each sequence. A row costs O(rows before it * channels). Throws
/// std::length_error for a row behind `context`, before anything is written.
template <class Real>
class attention_cache final : public mixer_stream<Real> {
 public:
  attention_cache(const mixer_shape& shape, index_t count);

  void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) override;
  void reset() override { seen_ = 0; }
  index_t bytes() const override;

 private:
  // Packs of logits that are summed at once: four independent sums hide the latency of a multiply-add.
  static constexpr index_t sums = 4;
  static constexpr Real lowest = -std::numeric_limits<Real>::infinity();

  /// One head of one sequence. Keys are transposed: a logit is then a lane, and needs no sum across lanes.
  struct head_cache {
    Real* keys;     // (width, stride)
    Real* values;   // (stride, padded)
    Real* weights;  // (stride), of the thread
  };
  void append(index_t t, const Real* k, const Real* v, const head_cache& h) const;
  void weigh(index_t keys, const Real* q, const head_cache& h) const;
  void average(index_t keys, const head_cache& h, Real* y) const;

  index_t channels_;
  index_t heads_;
  index_t width_;   // channels of a head
  index_t padded_;  // rounded up to whole packs
  index_t context_;
  index_t stride_;  // context, rounded up to what one step of weigh() takes
  index_t seen_ = 0;
  buffer<Real> keys_;
  buffer<Real> values_;
  buffer<Real> weights_;
};

extern template class attention_cache<float>;
extern template class attention_cache<double>;

}  // namespace examples
