// SPDX-License-Identifier: Apache-2.0
//
// Dot-product attention, the comparison for the AFT mixers. Blocked as in FlashAttention: no T x T
// array exists, the backward recomputes the weights from the saved log-sum-exp.
#pragma once

#include "common/mixers/mixer.hpp"
#include "common/support/parallel.hpp"
#include "common/support/simd.hpp"

#include <limits>

namespace examples {

template <class Real>
class attention final : public mixer<Real> {
 public:
  explicit attention(const mixer_shape& shape);

  index_t input_width() const override { return 3 * channels_; }
  void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) override;
  void backward(sequences s, const Real* qkv, const Real* y, const Real* dy, Real* dqkv, const aft::cpu& exec) override;
  std::unique_ptr<mixer_stream<Real>> make_stream(index_t count) override;

 private:
  // Rows and columns of a tile: two tiles of weights and the operands of one product stay in a 32 KiB L1.
  static constexpr index_t block = 64;
  // On the diagonal a tile is cut further, and what no pair sees is left out.
  static constexpr index_t group = row_multiple;
  static constexpr Real lowest = -std::numeric_limits<Real>::infinity();

  /// One head of one sequence, copied to rows of whole packs and whole blocks of zeros behind the end, so that
  /// the products need no remainders. Tiles are [key][query]: a query is a lane, and its maximum and sum need
  /// nothing across lanes.
  struct head_arrays {
    Real *q, *k, *v, *q_transposed, *out;
    Real *dout, *dout_transposed, *dq, *dk, *dv;
    Real *weights, *dweights;
    Real *top, *sum, *shrink;  // one tile's queries
    Real *lse, *mean;          // all queries
  };
  head_arrays arrays_of(int thread);
  void reserve(int threads);
  void copy_head(index_t time, const Real* from, index_t stride, Real factor, Real* to) const;
  void copy_back(index_t time, const Real* from, Real factor, Real* to, index_t stride) const;
  void transpose(const Real* from, Real* to, index_t time) const;

  /// What of a tile is computed: whole groups, of which the last may reach behind the end of the sequence.
  struct extent {
    index_t keys;
    index_t queries;
    index_t seen;   // keys before the end
    bool diagonal;  // of causal attention: a query sees the keys up to its own
  };
  extent extent_of(index_t time, index_t query, index_t key) const;
  /// work(first row, rows): all rows at once, or by groups if the tile lies on the diagonal.
  template <class Work>
  static void for_groups(bool diagonal, index_t rows, Work&& work) {
    const index_t count = diagonal ? group : rows;
    for (index_t first = 0; first < rows; first += count) work(first, count);
  }
  void pair_products(const Real* keys, const Real* queries_transposed, const extent& e, Real* tile) const;
  void add_to_queries(const Real* tile, const Real* rows, const extent& e, Real* out) const;
  void add_to_keys(const Real* tile, const Real* rows, const extent& e, Real* out) const;
  void hide(const extent& e, Real* tile) const;

  void forward_head(index_t time, const head_arrays& h, Real* lse) const;
  void fold_tile(const extent& e, const head_arrays& h, Real* out) const;
  void backward_head(index_t time, const head_arrays& h) const;
  void unfold_tile(index_t query, const extent& e, const head_arrays& h) const;

  mixer_shape shape_;
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

}  // namespace examples
