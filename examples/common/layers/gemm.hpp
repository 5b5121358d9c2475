// SPDX-License-Identifier: Apache-2.0
//
// Row-major matrix products: C = op(A) op(B) + beta C. One call runs on one thread; the callers cut
// the rows of a product into fixed pieces, so that the bits do not depend on the number of threads.
#pragma once

#include "common/support/parallel.hpp"

namespace examples {

enum class as { is, transposed };

template <class Real>
struct matrix {
  const Real* data;
  index_t stride;
  as form = as::is;
};

/// Real is float or double. The libraries behind it are gemm.cpp's own matter.
template <class Real>
void gemm(index_t m, index_t n, index_t k, matrix<Real> a, matrix<Real> b, Real beta, Real* c, index_t c_stride);
/// C (1, n) = A (1, k) B + beta C: a library that packs its operands has nothing to use twice in one row.
template <class Real>
void gemm_row(index_t n, index_t k, const Real* a, matrix<Real> b, Real beta, Real* c);

}  // namespace examples
