// SPDX-License-Identifier: Apache-2.0
//
// Images to rows: patches without overlap through one matrix, x = patch E + b, and P[position] where a mixer cannot
// tell positions apart.
#pragma once

#include "common/layers/parameter.hpp"
#include "common/mixers/mixer.hpp"

namespace examples::vision {

/// The grid of patches of an image.
struct patch_grid {
  index_t rows;
  index_t columns;
  index_t side;  // of a patch, in pixels
  index_t count() const { return rows * columns; }
  index_t pixels() const { return side * side; }
};

template <class Real>
class patch_embedding {
 public:
  patch_embedding(const patch_grid& grid, index_t channels, bool with_positions, index_t max_batch);

  /// pixels (batch, rows * side, columns * side) to x (batch, rows * columns, channels).
  void forward(index_t batch, const float* pixels, Real* x, int threads);

  /// After forward(). Threads share the channels, not the rows: every sum then runs over the rows in order.
  void backward(index_t batch, const Real* dx, int threads);

  void collect(parameter_list<Real>& all) {
    all.push_back(&weight);
    all.push_back(&bias);
    if (positions.count() > 0) all.push_back(&positions);
  }

  parameter<Real> weight;
  parameter<Real> bias;
  parameter<Real> positions;

 private:
  void copy_patch(index_t row, const float* pixels, Real* to) const;

  patch_grid grid_;
  index_t channels_;
  buffer<Real> patches_;
};

extern template class patch_embedding<float>;
extern template class patch_embedding<double>;

}  // namespace examples::vision
