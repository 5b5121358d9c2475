// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/wgmma.cuh  The bfloat16 product on warpgroups (sm_90a): one copies tiles ahead, two multiply 64 rows
/// each.
#pragma once

#include "../device/hopper.cuh"
#include "mma.cuh"

// Code for warpgroups runs on the very architecture that it was compiled for, and on no other.
#if defined(AFT_DEVICE_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define AFT_HAS_WARPGROUPS 1
#else
#define AFT_HAS_WARPGROUPS 0
#endif

namespace aft::inline AFT_ISA::cuda_impl {

/// Tiles in flight: 192 KiB, and 18 KiB for the sums, of the 227 that a block may have. Not measured.
inline constexpr int wgmma_stages = 4;
inline constexpr int wgmma_multipliers = gemm_rows / 64;
inline constexpr int wgmma_warps = wgmma_multipliers * warpgroup_size / warp_size;
inline constexpr int wgmma_threads = (1 + wgmma_multipliers) * warpgroup_size;
/// What the image for this device has been compiled for: the host takes the kernel where that is all of its threads.
inline constexpr int wgmma_threads_compiled =
#if defined(__CUDA_ARCH__) && !AFT_HAS_WARPGROUPS
    warp_size;
#else
    wgmma_threads;
#endif

struct wgmma_buffers {
  alignas(1024) gemm_stage stages[wgmma_stages];
  gemm_sums sums[wgmma_warps];
  arrival_barrier full[wgmma_stages];   ///< a tile has arrived
  arrival_barrier empty[wgmma_stages];  ///< all warps have done with it
};
static_assert(sizeof(gemm_stage) % 1024 == 0 && offsetof(gemm_stage, right) % 1024 == 0);
static_assert(dynamic_bytes<wgmma_buffers> <= 227 * 1024);

#if AFT_HAS_WARPGROUPS

/// The `i`-th tile that a block looks at: where it lies, and the parity of the round.
struct pipeline_state {
  int stage;
  unsigned parity;

  AFT_DEVICE static pipeline_state of(int i) {
    return {i % wgmma_stages, static_cast<unsigned>(i / wgmma_stages) & 1u};
  }
};

/// All tiles of keys, by one thread. The block has looked at `before` tiles already.
AFT_DEVICE void copy_tiles(const gemm_plan& plan, const gemm_place& place, int before, wgmma_buffers& buffers) {
  // Sums of channels that do not exist are of whatever lies there, and nobody looks at them.
  const int right_bytes = plan.lane_tiles_in(place.channel_tile) * static_cast<int>(sizeof(right_tile));
  AFT_DEVICE_UNROLL_BY(1)
  for (int i = 0; i < place.end - place.begin; ++i) {
    const pipeline_state turn = pipeline_state::of(before + i);
    gemm_stage& to = buffers.stages[turn.stage];
    arrival_barrier& full = buffers.full[turn.stage];
    wait_phase(buffers.empty[turn.stage], turn.parity ^ 1u);
    arrive_expecting(full, static_cast<int>(sizeof(left_tile)) + right_bytes);
    copy_bulk(to.left.operand, place.left(plan, place.begin + i).operand, static_cast<int>(sizeof(left_tile)), full);
    copy_bulk(to.right, plan.right_of(place.batch_item, place.channel_tile, place.begin + i), right_bytes, full);
  }
}

/// 64 of the block's rows, by a warpgroup. A tile stays in work until the next one's products have been started.
AFT_DEVICE void multiply_tiles(const gemm_place& place, int before, int first_row, wgmma_buffers& buffers,
                               wgmma_sums& d) {
  const bool announces = thread_index() % warp_size == 0;
  const int tiles = place.end - place.begin;
  AFT_DEVICE_UNROLL_BY(1)
  for (int i = 0; i < tiles; ++i) {
    const pipeline_state turn = pipeline_state::of(before + i);
    const gemm_stage& stage = buffers.stages[turn.stage];
    wait_phase(buffers.full[turn.stage], turn.parity);
    const std::uint64_t a = swizzled_matrix(stage.left.operand + first_row * operand_row_bytes);
    const std::uint64_t b = swizzled_matrix(stage.right);
    begin_products(d);
    AFT_DEVICE_UNROLL
    for (int step = 0; step < gemm_depth / 16; ++step) multiply_group(d, further(a, 32 * step), further(b, 32 * step));
    commit_products();
    wait_products<1>();
    if (i > 0 && announces) arrive(buffers.empty[pipeline_state::of(before + i - 1).stage]);
  }
  settle_products(d);
  if (tiles > 0 && announces) arrive(buffers.empty[pipeline_state::of(before + tiles - 1).stage]);
}

/// Eight rows at a time, and one copy of the code that finishes them: the registers are chosen by a comparison.
template <class Side>
AFT_DEVICE void wgmma_epilogue(const device_call<float>& p, const gemm_plan& plan,
                               const uniform_sums<typename Side::fold>& uniform, const gemm_place& place, int first_row,
                               gemm_sums& sums, const wgmma_sums& d) {
  const int lane = thread_index() % warp_size;
  AFT_DEVICE_UNROLL_BY(1)
  for (int part = 0; part < 2 * gemm_lane_tiles; ++part) {
    AFT_DEVICE_UNROLL
    for (int tile = 0; tile < gemm_lane_tiles; ++tile) AFT_DEVICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (2 * tile + half != part) continue;
      AFT_DEVICE_UNROLL
      for (int n = 0; n < 8; ++n) {
        const int at = 4 * (8 * tile + n) + 2 * half;
        sums.pair[lane / 4][4 * n + lane % 4] = {{d[at], d[at + 1]}};
      }
    }
    sync_warp();
    finish_gemm<Side>(p, plan, uniform, place, sums, first_row + 8 * (part % 2), part / 2);
    sync_warp();
  }
}

#endif

/// A block stays on its multiprocessor and takes every `launched`-th of the plan's, so that copies for the next begin,
/// and the faster of its groups multiplies, while results are still being written.
template <class Side>
AFT_KERNEL(wgmma_threads_compiled, 1)
gemm_wgmma_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER gemm_plan plan,
                  const AFT_PARAMETER uniform_sums<typename Side::fold> uniform) {
#if AFT_HAS_WARPGROUPS
  wgmma_buffers& buffers = dynamic_shared<wgmma_buffers>();
  if (thread_index() == 0) {
    for (int i = 0; i < wgmma_stages; ++i) {
      init_barrier(buffers.full[i], 1);
      init_barrier(buffers.empty[i], wgmma_warps);
    }
    show_barriers();
  }
  sync();
  const int group = thread_index() / warpgroup_size;
  int before = 0;
  if (group == wgmma_multipliers) {
    keep_registers<40>();
    if (thread_index() % warpgroup_size != 0) return;
    for (index_t block = block_index(); block < plan.blocks(); block += plan.launched) {
      const gemm_place place = gemm_place::of<Side>(p, uniform, plan, block);
      copy_tiles(plan, place, before, buffers);
      before += place.end - place.begin;
    }
  } else {
    // Of 64 Ki registers 128 times 40 are the copying group's.
    take_registers<232>();
    const int warp = thread_index() / warp_size;
    AFT_DEVICE_UNROLL_BY(1)
    for (index_t block = block_index(); block < plan.blocks(); block += plan.launched) {
      const gemm_place place = gemm_place::of<Side>(p, uniform, plan, block);
      wgmma_sums d;
      AFT_DEVICE_UNROLL
      for (int i = 0; i < 128; ++i) d[i] = 0.0f;
      multiply_tiles(place, before, group * 64, buffers, d);
      wgmma_epilogue<Side>(p, plan, uniform, place, warp * 16, buffers.sums[warp], d);
      before += place.end - place.begin;
    }
  }
#endif
}

}  // namespace aft::inline AFT_ISA::cuda_impl
