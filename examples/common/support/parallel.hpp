// SPDX-License-Identifier: Apache-2.0
//
// The loops that run on several threads. Work is cut into pieces of a fixed size, never into "one
// piece a thread": sums then have the same order, and the same bits, for any number of threads.
#pragma once

#include "common/support/buffer.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace examples {

inline int hardware_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Calls work(piece, thread) for every piece. Which thread takes which piece is left open (a busy
/// machine balances better that way), so a piece may only write what belongs to it.
template <class Work>
void parallel_for(index_t pieces, int threads, Work&& work) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && pieces > 1)
  for (index_t piece = 0; piece < pieces; ++piece) work(piece, omp_get_thread_num());
#else
  (void)threads;
  for (index_t piece = 0; piece < pieces; ++piece) work(piece, 0);
#endif
}

/// Rows [first, first + count) of one piece.
struct row_range {
  index_t first;
  index_t count;
  index_t piece;
  int thread;
};

// 128 rows of the widest activation (4 d floats) fill half of a 1 MiB L2 at d = 192, and leave the
// matrix product enough rows to pay for packing its weights.
inline constexpr index_t rows_per_piece = 128;

inline index_t row_pieces(index_t rows) {
  return (rows + rows_per_piece - 1) / rows_per_piece;
}

template <class Work>
void parallel_rows(index_t rows, int threads, Work&& work) {
  parallel_for(row_pieces(rows), threads, [&](index_t piece, int thread) {
    const index_t first = piece * rows_per_piece;
    work(row_range{first, std::min(rows_per_piece, rows - first), piece, thread});
  });
}

}  // namespace examples
