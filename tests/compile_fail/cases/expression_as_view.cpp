// SPDX-License-Identifier: Apache-2.0
// expect: an expression has no memory that a view could show: evaluate it first
#include "tensors.hpp"

#include <Eigen/Core>

inline const Eigen::MatrixXf a = Eigen::MatrixXf::Zero(5, 4), b = a;

void call() {
#if defined(AFT_CONTROL)
  const auto m = (a + b).eval();
  aft::simple(aft::as_view(m), aft::as_view(m), aft::as_view(m), y);
#else
  aft::simple(aft::as_view(a + b), k, v, y);
#endif
}
