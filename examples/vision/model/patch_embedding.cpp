// SPDX-License-Identifier: Apache-2.0

#include "vision/model/patch_embedding.hpp"

#include "common/layers/linear.hpp"

namespace examples::vision {

template <class Real>
patch_embedding<Real>::patch_embedding(const patch_grid& grid, index_t channels, bool with_positions, index_t max_batch)
    : weight("embedding.patches", {grid.pixels(), channels}, role::matrix),
      bias("embedding.bias", {channels}, role::vector),
      positions("embedding.positions", {with_positions ? grid.count() : 0, channels}, role::table),
      grid_(grid),
      channels_(channels),
      patches_(max_batch * grid.count() * grid.pixels()) {}

template <class Real>
void patch_embedding<Real>::forward(index_t batch, const float* pixels, Real* x, int threads) {
  const index_t d = channels_;
  const index_t size = grid_.pixels();
  parallel_rows(batch * grid_.count(), threads, [&](row_range r) {
    Real* y = x + r.first * d;
    for (index_t row = r.first; row < r.first + r.count; ++row) {
      copy_patch(row, pixels, patches_.data() + row * size);
      const Real* p = positions.count() > 0 ? positions.value.data() + row % grid_.count() * d : nullptr;
      for (index_t c = 0; c < d; ++c) y[(row - r.first) * d + c] = bias.value[c] + (p == nullptr ? Real(0) : p[c]);
    }
    through<Real>(r.count, size, d, patches_.data() + r.first * size, weight.value.data(), Real(1), y);
  });
}

template <class Real>
void patch_embedding<Real>::backward(index_t batch, const Real* dx, int threads) {
  const index_t d = channels_;
  const index_t rows = batch * grid_.count();
  weight_gradient<Real>(rows, grid_.pixels(), d, patches_.data(), dx, weight.grad.data(), threads);
  bias.grad.zero();
  positions.grad.zero();
  parallel_for(d / row_multiple, threads, [&](index_t piece, int) {
    const index_t first = piece * row_multiple;
    for (index_t row = 0; row < rows; ++row) {
      const Real* g = dx + row * d + first;
      for (index_t c = 0; c < row_multiple; ++c) bias.grad[first + c] += g[c];
      if (positions.count() == 0) continue;
      Real* p = positions.grad.data() + row % grid_.count() * d + first;
      for (index_t c = 0; c < row_multiple; ++c) p[c] += g[c];
    }
  });
}

template <class Real>
void patch_embedding<Real>::copy_patch(index_t row, const float* pixels, Real* to) const {
  const index_t width = grid_.columns * grid_.side;
  const index_t image = row / grid_.count();
  const index_t place = row % grid_.count();
  const float* from = pixels + image * grid_.count() * grid_.pixels() + place / grid_.columns * grid_.side * width +
                      place % grid_.columns * grid_.side;
  for (index_t i = 0; i < grid_.side; ++i)
    for (index_t j = 0; j < grid_.side; ++j) to[i * grid_.side + j] = static_cast<Real>(from[i * width + j]);
}

template class patch_embedding<float>;
template class patch_embedding<double>;

}  // namespace examples::vision
