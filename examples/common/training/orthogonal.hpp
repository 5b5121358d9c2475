// SPDX-License-Identifier: Apache-2.0
//
// About the orthogonal matrix next to another one: the direction of Muon's steps (K. Jordan et al., "Muon: An
// optimizer for hidden layers in neural networks", 2024). Every direction of a gradient then counts as much as the
// largest.
#pragma once

#include "common/support/buffer.hpp"

#include <Eigen/Dense>

namespace examples {

/// Of x, x^3 and x^5 in the polynomial that Muon applies to singular values, five times over. Small ones grow by the
/// first each time; in the end they lie about 1 and not at it, which is not needed.
constexpr double orthogonal_coefficients[3] = {3.4445, -4.7750, 2.0315};
constexpr int orthogonal_steps = 5;

/// x (rows, columns), row-major: from U S V^T to U S' V^T, where S' is the polynomial, five times over, of S over its
/// root of the sum of squares. A matrix of zeros stays one.
template <class Real>
void orthogonalize(index_t rows, index_t columns, Real* x) {
  using matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<matrix> all(x, rows, columns);
  const Real norm = all.norm();
  if (!(norm > 0)) return;
  const bool tall = rows > columns;
  matrix y = (tall ? matrix(all.transpose()) : matrix(all)) / norm;
  const auto a = static_cast<Real>(orthogonal_coefficients[0]);
  const auto b = static_cast<Real>(orthogonal_coefficients[1]);
  const auto c = static_cast<Real>(orthogonal_coefficients[2]);
  for (int step = 0; step < orthogonal_steps; ++step) {
    const matrix square = y * y.transpose();
    const matrix rest = b * square + c * (square * square);
    y = (a * y + rest * y).eval();
  }
  if (tall) {
    all = y.transpose();
  } else {
    all = y;
  }
}

}  // namespace examples
