// SPDX-License-Identifier: Apache-2.0
/// @file results.hpp  What the reference returns: row-major arrays that own their values.
#pragma once

#include <vector>

namespace aft::reference {

template <class Real>
struct forward_result {
  std::vector<Real> y;        ///< (B, Tq, d)
  std::vector<Real> average;  ///< (B, Tq, d), before the gate
  /// (B, Tq, d): per value channel. Channels that share a key channel and a head have the same value.
  std::vector<Real> lse;
  std::vector<Real> largest;  ///< (B, Tq, d): the largest |v| that the row sees, the size of the numbers averaged
};

/// Gradients in the shapes of their tensors; those of a bias that the call did not have are empty.
template <class Real>
struct gradients {
  std::vector<Real> dq, dk, dv;
  std::vector<Real> dw;             ///< dense or banded bias
  std::vector<Real> du, dv_factor;  ///< factorized bias
  std::vector<Real> dr;             ///< filter
};

template <class Real>
struct backward_result : gradients<Real> {
  /// For every gradient the sum of the absolute values of the terms that were added: the size of the numbers that any
  /// evaluation rounds, however much the sum itself cancels.
  gradients<Real> terms;
  /// The most that one row (b,t,c) hands out over all its keys: sum_s |a g| = |g|, and sum_s |a g| (|v| + max |v|), for
  /// the row's average is known to units of max |v| only.
  Real row_dv = 0, row_dx = 0;
  std::vector<Real> lse;  ///< as forward_result has it
};

}  // namespace aft::reference
