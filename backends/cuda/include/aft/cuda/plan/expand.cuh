// SPDX-License-Identifier: Apache-2.0
/// @file plan/expand.cuh  Parts of a factorized bias w = u v^T in scratch (AFT Eq. 7), as dense matrices or as bands.
#pragma once

#include "../device/tuning.hpp"
#include "../tensor/call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int expand_threads = tuning::pairs * tuning::pairs;

/// w[h, t, s] for all heads, t0 <= t < t1 and s0 <= s < s1, into out (heads, t1 - t0, width). With `banded` only what
/// lies inside the window, at column s - t + before; otherwise s at s - s0.
template <class C>
struct expand_plan {
  matrix u{}, v{};
  index_t heads = 0, rank = 0;
  index_t t0 = 0, t1 = 0, s0 = 0, s1 = 0, width = 0;
  bool banded = false;
  index_t before = 0;
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
  constexpr int side = tuning::pairs;
  expand_buffers<C>& tile = shared<expand_buffers<C>>();
  const int across = thread_index() % side;
  const int down = thread_index() / side;
  const index_t row_tile = block_index() / plan.column_tiles;
  const index_t h = row_tile / plan.row_tiles;
  const index_t t0 = plan.t0 + row_tile % plan.row_tiles * side;
  const index_t s0 = (plan.banded ? t0 - plan.before : plan.s0) + block_index() % plan.column_tiles * side;
  C sum = C(0);
  for (index_t n0 = 0; n0 < plan.rank; n0 += side) {
    sync();
    const index_t n = n0 + across;
    const bool u_exists = n < plan.rank && t0 + down < plan.t1;
    const bool v_exists = n < plan.rank && s0 + down >= plan.s0 && s0 + down < plan.s1;
    const index_t u_at = h * plan.u.sh + (t0 + down) * plan.u.sr + n * plan.u.sc;
    const index_t v_at = h * plan.v.sh + (s0 + down) * plan.v.sr + n * plan.v.sc;
    tile.u[down][across] = u_exists ? load<C>(plan.u.data, plan.u.type, u_at) : C(0);
    tile.v[down][across] = v_exists ? load<C>(plan.v.data, plan.v.type, v_at) : C(0);
    sync();
    for (int i = 0; i < side && n0 + i < plan.rank; ++i) sum = fused(tile.u[down][i], tile.v[across][i], sum);
  }
  const index_t t = t0 + down;
  const index_t s = s0 + across;
  const index_t place = s - (plan.banded ? t - plan.before : plan.s0);
  if (t < plan.t1 && s >= plan.s0 && s < plan.s1 && place >= 0 && place < plan.width)
    plan.out[(h * (plan.t1 - plan.t0) + t - plan.t0) * plan.width + place] = sum;
}

/// What of a factorized bias is worked on: a band, where the window is narrower than the sequence.
inline bool expands_band(const problem& p) {
  return p.win.bounded && p.win.before + p.win.after + 1 < p.Tk;
}
inline index_t expanded_width(const problem& p) {
  if (!expands_band(p)) return p.Tk;
  const index_t width = p.win.before + p.win.after + 1;
  return max_of(width, 0);
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
  return min_of(rows, total);
}

template <class C>
expand_plan<C> plan_expansion(const device_bias& bias, index_t t0, index_t t1, index_t s0, index_t s1, C* out) {
  constexpr index_t side = tuning::pairs;
  expand_plan<C> plan{bias.u, bias.v, bias.heads, bias.rank, t0, t1, s0, s1, s1 - s0};
  plan.row_tiles = ceil_div(t1 - t0, side);
  plan.column_tiles = ceil_div(s1 - s0, side);
  plan.out = out;
  return plan;
}
/// The band of rows [t0, t1), among `keys` keys.
template <class C>
expand_plan<C> plan_band(const device_bias& bias, index_t t0, index_t t1, index_t keys, index_t width, C* out) {
  expand_plan<C> plan = plan_expansion(bias, t0, t1, 0, keys, out);
  plan.banded = true;
  plan.before = bias.before;
  plan.width = width;
  // The last row of a tile begins its band side - 1 keys later than the first.
  constexpr index_t side = tuning::pairs;
  plan.column_tiles = width == 0 ? 0 : (width + 2 * side - 2) / side;
  return plan;
}

/// The bias as the matrix that the plan has filled.
template <class C>
device_bias expanded(const device_bias& bias, const expand_plan<C>& plan) {
  device_bias filled = bias;
  filled.kind = plan.banded ? bias_kind::banded : bias_kind::dense;
  filled.batched = false;
  filled.w.data = reinterpret_cast<std::byte*>(plan.out);
  filled.w.type = dtype_of<C>;
  filled.w.sb = 0;
  filled.w.sc = 1;
  filled.w.sr = plan.width;
  filled.w.sh = filled.w.sr * (plan.t1 - plan.t0);
  filled.row = plan.t0;
  filled.column = plan.s0;
  return filled;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
