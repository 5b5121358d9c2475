// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/sums.cuh  Sums of dw that are the gradients of factors (du = dw v, dv = dw^T u) and of a
/// filter's taps.
///
/// dw arrives in blocks of rows, one launch after the other, and every sum has one owner: the order never changes.
#pragma once

#include "../device/tuning.hpp"
#include "../tensor/call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// dw (heads, t1 - t0, width) of the keys [s0, s1) at s, or with `banded` at s - t + before; the other factor `f`
/// (f_heads, positions, n), and the sums so far (sum_heads, sum_rows, n).
template <class C>
struct factor_sums {
  const C* dw = nullptr;
  index_t heads = 0, t0 = 0, t1 = 0, s0 = 0, s1 = 0, width = 0, rank = 0;
  bool banded = false;
  index_t before = 0;
  matrix f{};
  C* sums = nullptr;
  index_t sum_heads = 0, sum_rows = 0;

  void to(const matrix& other, C* where, index_t where_heads, index_t where_rows) {
    f = other;
    sums = where;
    sum_heads = where_heads;
    sum_rows = where_rows;
  }
  /// The keys that row t has gradients for.
  AFT_DEVICE span keys(index_t t) const {
    if (!banded) return {s0, s1};
    const index_t lo = t - before, hi = lo + width;
    return {lo < s0 ? s0 : lo, hi > s1 ? s1 : hi};
  }
  /// The rows that key s has gradients of.
  AFT_DEVICE span rows(index_t s) const {
    if (!banded) return {t0, t1};
    const index_t hi = s + before + 1, lo = hi - width;
    return {lo < t0 ? t0 : lo, hi > t1 ? t1 : hi};
  }
};

inline constexpr int factor_threads = 256;

/// sums[t, n] += sum_s dw[t, s] f[s, n], or with `transposed` sums[s, n] += sum_t dw[t, s] f[t, n]. A thread for each
/// (row, n); a factor that has no heads of its own adds up those of the bias.
template <bool transposed, class C>
AFT_KERNEL(factor_threads, 2)
factor_gradient_kernel(const AFT_PARAMETER factor_sums<C> a) {
  const index_t first_row = transposed ? a.s0 : a.t0;
  const index_t rows = transposed ? a.s1 - a.s0 : a.t1 - a.t0;
  const index_t i = block_index() * factor_threads + thread_index();
  if (i >= a.sum_heads * rows * a.rank) return;
  const index_t n = i % a.rank;
  const index_t row = first_row + i / a.rank % rows;
  const index_t own = i / a.rank / rows;
  const index_t first = a.sum_heads > 1 ? own : 0;
  const index_t last = a.sum_heads > 1 ? own + 1 : a.heads;
  const span terms = transposed ? a.rows(row) : a.keys(row);
  const index_t origin = transposed ? a.t0 : 0;
  C sum = C(0);
  for (index_t h = first; h < last; ++h) {
    // Parts begin at multiples of the depth, whatever the window leaves of them.
    for (index_t j0 = origin + (terms.lo - origin) / tuning::depth * tuning::depth; j0 < terms.hi;
         j0 += tuning::depth) {
      C part = C(0);
      for (index_t j = j0 < terms.lo ? terms.lo : j0; j < j0 + tuning::depth && j < terms.hi; ++j) {
        const index_t t = transposed ? j : row;
        const index_t s = transposed ? row : j;
        const C dw = a.dw[(h * (a.t1 - a.t0) + t - a.t0) * a.width + (a.banded ? s - t + a.before : s)];
        // An untouched pair is exactly 0 and must not spread a NaN of the other factor.
        if (dw == C(0)) continue;
        part = fused(dw, load<C>(a.f.data, a.f.type, h * a.f.sh + j * a.f.sr + n * a.f.sc), part);
      }
      sum += part;
    }
  }
  a.sums[(own * a.sum_rows + row) * a.rank + n] += sum;
}

/// A matrix (heads, rows, width) from sums in row-major order.
template <class C>
AFT_KERNEL(factor_threads, 2)
store_sums_kernel(const AFT_PARAMETER matrix m, const C* sums, const index_t heads, const index_t rows,
                  const index_t width) {
  const index_t i = block_index() * factor_threads + thread_index();
  if (i >= heads * rows * width) return;
  store<C>(m.data, m.type, i / width / rows * m.sh + i / width % rows * m.sr + i % width * m.sc, sums[i]);
}

/// to[h, r, c] += from[h, r, c]: (heads, rows, width) in row-major order into sums that have more rows and columns.
template <class C>
AFT_KERNEL(factor_threads, 2)
add_sums_kernel(C* to, const index_t to_rows, const index_t to_width, const C* from, const index_t heads,
                const index_t rows, const index_t width) {
  const index_t i = block_index() * factor_threads + thread_index();
  if (i >= heads * rows * width) return;
  to[(i / width / rows * to_rows + i / width % rows) * to_width + i % width] += from[i];
}

inline constexpr int tap_threads = 128;

template <class C>
struct tap_buffers {
  C sums[tap_threads];
};

/// sums[h, j] += sum over rows of dw[h, t, j], a block for each. The threads' parts merge as a tree.
template <class C>
AFT_KERNEL(tap_threads, 8)
tap_gradient_kernel(const C* dw, const index_t rows, const index_t taps, C* sums) {
  tap_buffers<C>& tile = shared<tap_buffers<C>>();
  const index_t h = block_index() / taps;
  const index_t j = block_index() % taps;
  C sum = C(0);
  for (index_t t = thread_index(); t < rows; t += tap_threads) sum += dw[(h * rows + t) * taps + j];
  tile.sums[thread_index()] = sum;
  for (int half = tap_threads / 2; half > 0; half /= 2) {
    sync();
    if (thread_index() < half) tile.sums[thread_index()] += tile.sums[thread_index() + half];
  }
  if (thread_index() == 0) sums[h * taps + j] += tile.sums[0];
}

/// The taps of a filter from sums (heads, taps).
template <class C>
AFT_KERNEL(factor_threads, 2)
store_taps_kernel(const AFT_PARAMETER device_bias out, const C* sums) {
  const index_t taps = out.taps.n0 * out.taps.n1 * out.taps.n2;
  const index_t i = block_index() * factor_threads + thread_index();
  if (i >= out.heads * taps) return;
  const index_t j = i % taps;
  const index_t at = i / taps * out.r_sh + j / (out.taps.n1 * out.taps.n2) * out.r_s0 +
                     j / out.taps.n2 % out.taps.n1 * out.r_s1 + j % out.taps.n2 * out.r_s2;
  store<C>(out.r, out.r_type, at, sums[i]);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
