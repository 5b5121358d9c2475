// SPDX-License-Identifier: Apache-2.0
// expect: this matrix is a temporary
#include "tensors.hpp"

#include <Eigen/Core>

inline const Eigen::MatrixXf a = Eigen::MatrixXf::Zero(5, 4), b = a;

void call() {
#if defined(AFT_CONTROL)
  const Eigen::MatrixXf m = (a + b).eval();
  static_cast<void>(aft::as_view(m));
#else
  // What eval() returns is const.
  static_cast<void>(aft::as_view((a + b).eval()));
#endif
}
