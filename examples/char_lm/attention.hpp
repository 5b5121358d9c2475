// SPDX-License-Identifier: Apache-2.0
//
// Causal dot-product attention, the comparison for the AFT mixers. Blocked as in FlashAttention: no T x T
// array exists, the backward recomputes the weights from the saved log-sum-exp.
#pragma once

#include "mixer.hpp"
#include "parallel.hpp"

namespace char_lm {

template <class Real>
class attention final : public mixer<Real> {
 public:
  explicit attention(const mixer_shape& shape);

  index_t input_width() const override { return 3 * channels_; }
  void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) override;
  void backward(sequences s, const Real* qkv, const Real* y, const Real* dy, Real* dqkv, const aft::cpu& exec) override;

 private:
  // Rows and columns of a tile: two tiles of weights and the operands of one product stay in a 32 KiB L1.
  static constexpr index_t block = 64;

  /// One head of one sequence, copied to rows of whole packs and whole blocks of zeros behind the
  /// end, so that the products need no remainders.
  struct head_arrays {
    Real *q, *k, *v, *k_transposed, *v_transposed;  // forward: q, v and k_transposed only
    Real *out, *dout, *dq, *dk, *dv;
    Real *weights, *dweights;  // one tile each
    Real *row_max, *row_sum, *row_dot;
  };
  head_arrays arrays_of(int thread);
  void reserve(int threads);
  void copy_head(index_t time, const Real* from, index_t stride, Real factor, Real* to) const;
  void copy_back(index_t time, const Real* from, Real factor, Real* to, index_t stride) const;
  void transpose(const Real* from, Real* to, index_t time) const;
  void forward_head(index_t time, const head_arrays& h, Real* lse) const;
  void fold_tile(index_t first_key, bool diagonal, bool first, const head_arrays& h, Real* out) const;
  void backward_head(index_t time, const head_arrays& h, const Real* lse) const;
  void weight_tile(index_t query, index_t key, index_t time, const head_arrays& h, const Real* lse) const;

  index_t channels_;
  index_t heads_;
  index_t width_;   // channels of a head
  index_t padded_;  // rounded up to whole packs
  index_t longest_;
  Real scale_;
  buffer<Real> lse_;  // (batch, head, time)
  buffer<Real> scratch_;
  index_t scratch_stride_;
};

extern template class attention<float>;
extern template class attention<double>;

}  // namespace char_lm
