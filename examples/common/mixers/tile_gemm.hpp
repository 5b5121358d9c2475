// SPDX-License-Identifier: Apache-2.0
//
// Products of tiles that are already in the nearest cache, for the attention mixer: a library call
// would spend as long packing a 64 x 64 x 32 product as computing it.
#pragma once

#include "common/support/simd.hpp"

namespace examples {

// 8 x 2 accumulators hide the latency of two multiply-adds a cycle and fit 32 vector registers; with 16
// registers only 4 x 2 leave room for the operands.
#if defined(__AVX512F__)
inline constexpr int tile_rows = 8;
#else
inline constexpr int tile_rows = 4;
#endif

/// A is read one element at a time, so any strides cost the same: its transpose needs no copy.
template <class Real>
struct tile_operand {
  const Real* data;
  index_t row_stride;
  index_t column_stride = 1;
};

namespace detail {

template <int Packs, class Real>
void tile_kernel(index_t k, tile_operand<Real> a, const Real* b, index_t b_stride, bool add, Real* c,
                 index_t c_stride) {
  pack<Real> sum[tile_rows][Packs];
  for (int i = 0; i < tile_rows; ++i)
    for (int j = 0; j < Packs; ++j) sum[i][j] = add ? load(c + i * c_stride + j * lanes<Real>) : pack<Real>(Real(0));
  for (index_t p = 0; p < k; ++p) {
    pack<Real> row[Packs];
    for (int j = 0; j < Packs; ++j) row[j] = load(b + p * b_stride + j * lanes<Real>);
    for (int i = 0; i < tile_rows; ++i) {
      const pack<Real> x(a.data[i * a.row_stride + p * a.column_stride]);
      for (int j = 0; j < Packs; ++j) sum[i][j] = xsimd::fma(x, row[j], sum[i][j]);
    }
  }
  for (int i = 0; i < tile_rows; ++i)
    for (int j = 0; j < Packs; ++j) store(c + i * c_stride + j * lanes<Real>, sum[i][j]);
}

}  // namespace detail

/// C (m, n) = A (m, k) B (k, n), or C += A B. m is a multiple of `tile_rows`, n of the pack size.
template <class Real>
void tile_gemm(index_t m, index_t n, index_t k, tile_operand<Real> a, const Real* b, index_t b_stride, bool add,
               Real* c, index_t c_stride) {
  for (index_t i = 0; i < m; i += tile_rows) {
    const tile_operand<Real> rows{a.data + i * a.row_stride, a.row_stride, a.column_stride};
    index_t j = 0;
    for (; j + 2 * lanes<Real> <= n; j += 2 * lanes<Real>)
      detail::tile_kernel<2>(k, rows, b + j, b_stride, add, c + i * c_stride + j, c_stride);
    if (j < n) detail::tile_kernel<1>(k, rows, b + j, b_stride, add, c + i * c_stride + j, c_stride);
  }
}

}  // namespace examples
