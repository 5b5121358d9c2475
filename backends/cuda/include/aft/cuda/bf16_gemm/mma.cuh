// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/mma.cuh  The bfloat16 product on mma.sync (sm_80 and up).
#pragma once

#include "key_line_epilogue.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The part of a block's tile that a warp computes: 64 rows and 64 columns, which are 32 channels.
struct gemm_warp {
  static constexpr int row_blocks = 4;     ///< of 16 rows
  static constexpr int column_blocks = 8;  ///< of 8 columns
  static constexpr int warps_down = gemm_rows / (16 * row_blocks);
  static constexpr int warps = warps_down * gemm_lane_tiles;
  static_assert(8 * column_blocks == 2 * tuning::lanes);
  int first_row, lane_tile, lane;

  AFT_DEVICE static gemm_warp own() {
    const int warp = thread_index() / warp_size;
    return {warp % warps_down * 16 * row_blocks, warp / warps_down, thread_index() % warp_size};
  }
};

inline constexpr int gemm_threads = gemm_warp::warps * warp_size;

struct gemm_stage {
  left_tile left;
  right_tile right[gemm_lane_tiles];
};

/// Of the mainloop, and after it of the epilogue.
union alignas(128) gemm_buffers {
  gemm_stage stages[2];
  gemm_sums sums[gemm_warp::warps];
};

using gemm_accumulators = float[gemm_warp::row_blocks][gemm_warp::column_blocks][4];

/// acc += left right, 64 keys.
AFT_DEVICE void multiply_stage(const gemm_stage& stage, const gemm_warp& at, gemm_accumulators& acc) {
  // The row of a matrix that this lane names to load_matrices, and which of the four matrices it is in.
  const int matrix = at.lane / 8;
  const int within = at.lane % 8;
  AFT_DEVICE_UNROLL
  for (int step = 0; step < gemm_depth / 16; ++step) {
    std::uint32_t a[gemm_warp::row_blocks][4];
    AFT_DEVICE_UNROLL
    for (int m = 0; m < gemm_warp::row_blocks; ++m) {
      const int row = at.first_row + 16 * m + 8 * (matrix % 2) + within;
      load_matrices(a[m], stage.left.operand + chunk_at(row, 2 * step + matrix / 2));
    }
    AFT_DEVICE_UNROLL
    for (int n = 0; n < gemm_warp::column_blocks; n += 2) {
      const int column = 8 * n + 8 * (matrix / 2) + within;
      std::uint32_t words[4];
      load_matrices(words, stage.right[at.lane_tile].operand + chunk_at(column, 2 * step + matrix % 2));
      AFT_DEVICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t b[2] = {words[2 * i], words[2 * i + 1]};
        AFT_DEVICE_UNROLL
        for (int m = 0; m < gemm_warp::row_blocks; ++m) mma_bfloat16(acc[m][n + i], a[m], b);
      }
    }
  }
}

/// From global to shared memory, by all threads of the block.
template <class Tile>
AFT_DEVICE void start_gemm_copy(const Tile& from, Tile& to) {
  constexpr int chunks = static_cast<int>(sizeof(Tile)) / chunk_bytes;
  static_assert(chunks % gemm_threads == 0);
  AFT_DEVICE_UNROLL
  for (int i = 0; i < chunks / gemm_threads; ++i) {
    const int at = (i * gemm_threads + thread_index()) * chunk_bytes;
    copy_async(to.operand + at, from.operand + at);
  }
}

/// Rows [row, row + 8) of the block's tile in 32 of its channels, by one warp.
template <class Side>
AFT_DEVICE void finish_gemm(const device_call<float>& p, const gemm_plan& plan,
                            const uniform_sums<typename Side::fold>& uniform, const gemm_place& place, gemm_sums& sums,
                            int row, int lane_tile) {
  if constexpr (Side::in_lines && Side::are_keys) {
    key_line_epilogue(p, plan, uniform, place, sums, row, lane_tile);
  } else if constexpr (Side::in_lines) {
    line_epilogue(p, plan, uniform, place, sums, row, lane_tile);
  } else if constexpr (Side::are_keys) {
    gemm_key_epilogue(p, plan, uniform, place, sums, row, lane_tile);
  } else {
    gemm_epilogue(p, plan, uniform, place, sums, row, lane_tile);
  }
}

template <class Side>
AFT_KERNEL(gemm_threads, 1)
gemm_mma_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER gemm_plan plan,
                const AFT_PARAMETER uniform_sums<typename Side::fold> uniform) {
  gemm_buffers& buffers = dynamic_shared<gemm_buffers>();
  const gemm_place place = gemm_place::of<Side>(p, uniform, plan, block_index());
  const gemm_warp at = gemm_warp::own();
  gemm_accumulators acc;
  AFT_DEVICE_UNROLL
  for (int m = 0; m < gemm_warp::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < gemm_warp::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.0f;

  const int lane_tiles = plan.lane_tiles_in(place.channel_tile);
  const auto start = [&](int tile) {
    if (tile < place.end) {
      gemm_stage& stage = buffers.stages[(tile - place.begin) % 2];
      start_gemm_copy(place.left(plan, tile), stage.left);
      const right_tile* const right = plan.right_of(place.batch_item, place.channel_tile, tile);
      AFT_DEVICE_UNROLL
      for (int i = 0; i < gemm_lane_tiles; ++i)
        if (i < lane_tiles) start_gemm_copy(right[i], stage.right[i]);
    }
    commit_copies();
  };
  start(place.begin);
  AFT_DEVICE_UNROLL_BY(1)
  for (int tile = place.begin; tile < place.end; ++tile) {
    wait_copies<0>();
    sync();  // the tile has arrived for all threads, and all have done with the one before
    start(tile + 1);
    if (at.lane_tile < lane_tiles) multiply_stage(buffers.stages[(tile - place.begin) % 2], at, acc);
  }
  wait_copies<0>();
  sync();

  // Eight rows at a time, and one copy of the code that finishes them: the registers are chosen by a comparison.
  gemm_sums& sums = buffers.sums[thread_index() / warp_size];
  AFT_DEVICE_UNROLL_BY(1)
  for (int part = 0; part < 2 * gemm_warp::row_blocks; ++part) {
    AFT_DEVICE_UNROLL
    for (int m = 0; m < gemm_warp::row_blocks; ++m) AFT_DEVICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (2 * m + half != part) continue;
      AFT_DEVICE_UNROLL
      for (int n = 0; n < gemm_warp::column_blocks; ++n)
        sums.pair[at.lane / 4][4 * n + at.lane % 4] = {{acc[m][n][2 * half], acc[m][n][2 * half + 1]}};
    }
    sync_warp();
    finish_gemm<Side>(p, plan, uniform, place, sums, at.first_row + 8 * part, at.lane_tile);
    sync_warp();
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
