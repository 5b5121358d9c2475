// SPDX-License-Identifier: Apache-2.0
//
// The two halves of a linear layer that every sub-layer needs: rows through a weight, and the
// weight's gradient.
#pragma once

#include "common/layers/gemm.hpp"
#include "common/support/parallel.hpp"
#include "common/support/simd.hpp"

namespace examples {

/// dw (in, out) = x^T dy over all rows. Cut into tiles of dw at full depth: no partial sums to add, and the
/// bits are the same for any number of threads. Tiles of 96 columns measured fastest (0.98 of the
/// machine's peak; 48 gives 0.93, cutting the depth instead 0.75 to 0.93).
template <class Real>
void weight_gradient(index_t rows, index_t in, index_t out, const Real* x, const Real* dy, Real* dw, int threads) {
  constexpr index_t in_cut = 192;
  constexpr index_t out_cut = 96;
  const index_t out_pieces = (out + out_cut - 1) / out_cut;
  const index_t in_pieces = (in + in_cut - 1) / in_cut;
  parallel_for(in_pieces * out_pieces, threads, [&](index_t piece, int) {
    const index_t i = piece / out_pieces * in_cut;
    const index_t j = piece % out_pieces * out_cut;
    gemm<Real>(std::min(in_cut, in - i), std::min(out_cut, out - j), rows, {x + i, in, as::transposed}, {dy + j, out},
               Real(0), dw + i * out + j, out);
  });
}

/// y (rows, out) = x (rows, in) w (in, out) + beta y.
template <class Real>
void through(index_t rows, index_t in, index_t out, const Real* x, const Real* w, Real beta, Real* y) {
  gemm<Real>(rows, out, in, {x, in}, {w, out}, beta, y, out);
}

/// The same of one row, which reads the weight once and is as fast as that: threads share its columns, since there
/// are no rows to share. 128 KiB of weight take 4 us from a third-level cache, twice what a team needs to begin.
template <class Real>
void row_through(index_t in, index_t out, const Real* x, const Real* w, Real beta, Real* y, int threads) {
  constexpr index_t cut = 128 * 1024 / static_cast<index_t>(sizeof(Real));
  const index_t pieces = std::max(in * out / cut, index_t{1});
  const index_t columns = ((out + pieces - 1) / pieces + lanes<Real> - 1) / lanes<Real> * lanes<Real>;
  parallel_for((out + columns - 1) / columns, threads, [&](index_t piece, int) {
    const index_t first = piece * columns;
    gemm_row<Real>(std::min(columns, out - first), in, x, {w + first, out}, beta, y + first);
  });
}

/// dx (rows, in) = dy (rows, out) w^T + beta dx.
template <class Real>
void back_through(index_t rows, index_t in, index_t out, const Real* dy, const Real* w, Real beta, Real* dx) {
  gemm<Real>(rows, in, out, {dy, out}, {w, out, as::transposed}, beta, dx, in);
}

/// Column sums of pieces (pieces, channels), in their order.
template <class Real>
void sum_pieces(index_t pieces, index_t channels, const Real* partial, Real* out) {
  std::fill(out, out + channels, Real(0));
  for (index_t piece = 0; piece < pieces; ++piece)
    for (index_t c = 0; c < channels; ++c) out[c] += partial[piece * channels + c];
}

}  // namespace examples
