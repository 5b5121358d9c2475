// SPDX-License-Identifier: Apache-2.0
/// @file expand.cuh  Parts of a factorized bias w = u v^T as dense matrices in scratch (AFT Eq. 7).
#pragma once

#include "call.cuh"
#include "tuning.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cuda_impl {

inline constexpr int expand_threads = tuning::pairs * tuning::pairs;

/// w[h, t, s] for all heads, t0 <= t < t1 and s0 <= s < s1, into out (heads, t1 - t0, s1 - s0).
template <class C>
struct expand_plan {
  matrix u{}, v{};
  index_t heads = 0, rank = 0;
  index_t t0 = 0, t1 = 0, s0 = 0, s1 = 0;
  index_t row_tiles = 0, column_tiles = 0;
  C* out = nullptr;

  index_t blocks() const { return heads * row_tiles * column_tiles; }
};

template <class C>
struct expand_buffers {
  C u[tuning::pairs][tuning::pairs + 1];
  C v[tuning::pairs][tuning::pairs + 1];
};

/// A pair a thread; the sum over n runs in order, so that every part of w has the same bits whichever way it is cut.
template <class C>
AFT_KERNEL(expand_threads, 4)
expand_kernel(const AFT_PARAMETER expand_plan<C> plan) {
  constexpr int width = tuning::pairs;
  expand_buffers<C>& tile = shared<expand_buffers<C>>();
  const int across = thread_index() % width;
  const int down = thread_index() / width;
  const index_t row_tile = block_index() / plan.column_tiles;
  const index_t h = row_tile / plan.row_tiles;
  const index_t t0 = plan.t0 + row_tile % plan.row_tiles * width;
  const index_t s0 = plan.s0 + block_index() % plan.column_tiles * width;
  C sum = C(0);
  for (index_t n0 = 0; n0 < plan.rank; n0 += width) {
    sync();
    const index_t n = n0 + across;
    const bool u_exists = n < plan.rank && t0 + down < plan.t1;
    const bool v_exists = n < plan.rank && s0 + down < plan.s1;
    const index_t u_at = h * plan.u.sh + (t0 + down) * plan.u.sr + n * plan.u.sc;
    const index_t v_at = h * plan.v.sh + (s0 + down) * plan.v.sr + n * plan.v.sc;
    tile.u[down][across] = u_exists ? load<C>(plan.u.data, plan.u.type, u_at) : C(0);
    tile.v[down][across] = v_exists ? load<C>(plan.v.data, plan.v.type, v_at) : C(0);
    sync();
    for (int i = 0; i < width && n0 + i < plan.rank; ++i) sum = fused(tile.u[down][i], tile.v[across][i], sum);
  }
  const index_t t = t0 + down;
  const index_t s = s0 + across;
  if (t < plan.t1 && s < plan.s1)
    plan.out[(h * (plan.t1 - plan.t0) + t - plan.t0) * (plan.s1 - plan.s0) + s - plan.s0] = sum;
}

/// How many rows of `heads` matrices with rows of `length` elements are worked on at once, of `total`: 0 where even
/// one is beyond the limit, and pairs are multiplied out one by one instead.
template <class C>
index_t rows_at_once(index_t heads, index_t length, index_t total, index_t multiple) {
  const index_t row_bytes = heads * length * static_cast<index_t>(sizeof(C));
  if (row_bytes == 0) return total;
  if (row_bytes > tuning::block_bytes) return 0;
  index_t rows = tuning::block_bytes / row_bytes;
  if (rows > multiple) rows = rows / multiple * multiple;
  return rows < total ? rows : total;
}

template <class C>
expand_plan<C> plan_expansion(const bias_source& bias, index_t t0, index_t t1, index_t s0, index_t s1, C* out) {
  constexpr index_t width = tuning::pairs;
  return {bias.u,
          bias.v,
          bias.heads,
          bias.rank,
          t0,
          t1,
          s0,
          s1,
          (t1 - t0 + width - 1) / width,
          (s1 - s0 + width - 1) / width,
          out};
}

/// The bias as the dense matrix that the plan has filled.
template <class C>
bias_source expanded(const bias_source& bias, const expand_plan<C>& plan) {
  bias_source dense = bias;
  dense.kind = bias_kind::dense;
  dense.batched = false;
  dense.w.data = reinterpret_cast<std::byte*>(plan.out);
  dense.w.type = dtype_of<C>;
  dense.w.sb = 0;
  dense.w.sc = 1;
  dense.w.sr = plan.s1 - plan.s0;
  dense.w.sh = dense.w.sr * (plan.t1 - plan.t0);
  dense.row = plan.t0;
  dense.column = plan.s0;
  return dense;
}

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft
