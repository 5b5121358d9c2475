// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/line_place.cuh  What a lane packs of a right operand whose source is lines of channels.
#pragma once

#include "../tensor/access.cuh"
#include "tiles.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int line_positions = chunk_bytes / 2;
inline constexpr int line_channels = 4;
inline constexpr int line_turns = 2;

/// A warp has a right tile, a lane eight positions of four channels in each of two turns: a chunk of the operand for
/// each row. Eight lanes write the chunks of a row, which are a whole line, and the four that read a position read a
/// sector.
struct line_place {
  index_t batch_item, channel_tile, tile;
  index_t batch, first_channel;  ///< of the batch item, see columns
  int lane_tile, chunk, group;

  AFT_DEVICE static line_place of(const gemm_plan& plan) {
    const index_t stripe = quotient(block_index(), plan.right_tiles);
    line_place at{};
    at.tile = block_index() - stripe * plan.right_tiles;
    at.batch_item = quotient(stripe, plan.channel_tiles);
    at.channel_tile = stripe - at.batch_item * plan.channel_tiles;
    at.batch = plan.rows.cols.batch(at.batch_item);
    at.first_channel = plan.rows.cols.head(at.batch_item) * plan.rows.cols.width;
    at.lane_tile = thread_index() / warp_size;
    at.chunk = thread_index() % line_positions;
    at.group = thread_index() % warp_size / line_positions;
    return at;
  }
  AFT_DEVICE bool exists(const gemm_plan& plan) const { return lane_tile < plan.lane_tiles_in(channel_tile); }
  AFT_DEVICE std::byte* target(const gemm_plan& plan) const {
    return plan.right_of(batch_item, channel_tile, tile)[lane_tile].operand;
  }
  AFT_DEVICE index_t first_position() const { return tile * gemm_depth + chunk * line_positions; }
  /// The first of its channels in the tile.
  AFT_DEVICE int channel(int turn) const { return (turn * line_channels + group) * line_channels; }
  /// Of its first channel, as columns::at() has it.
  AFT_DEVICE column column_of(const gemm_plan& plan, int turn) const {
    const columns& cols = plan.rows.cols;
    const index_t j = channel_tile * gemm_channels + lane_tile * tuning::lanes + channel(turn);
    const index_t own = quotient(j, cols.width);
    return {cols.batched ? batch : own, first_channel + (j - own * cols.width), j < cols.count()};
  }
  /// Among the plan's columns.
  AFT_DEVICE index_t of_columns(const gemm_plan& plan, int turn) const {
    return (batch_item * plan.channel_tiles + channel_tile) * gemm_channels + lane_tile * tuning::lanes + channel(turn);
  }
};

/// Num and den of a lane's positions, two in a word.
struct line_chunks {
  four_words num[line_channels], den[line_channels];

  AFT_DEVICE void copy_out(std::byte* tile, const line_place& at, int turn) const {
    AFT_DEVICE_UNROLL
    for (int j = 0; j < line_channels; ++j) {
      const int row = 2 * (at.channel(turn) + j);
      store_words(tile + chunk_at(row, at.chunk), num[j]);
      store_words(tile + chunk_at(row + 1, at.chunk), den[j]);
    }
  }
};

/// One position of one channel, where a lane's others are not all ordinary numbers.
AFT_DEVICE void store_one(std::byte* tile, int channel, int chunk, int i, std::uint16_t num, std::uint16_t den) {
  store_words(tile + chunk_at(2 * channel, chunk) + 2 * i, num);
  store_words(tile + chunk_at(2 * channel + 1, chunk) + 2 * i, den);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
