// SPDX-License-Identifier: Apache-2.0
/// @file fold/flags.cuh  The rows that a fold works on, a bit for each that it could not prove, and who looks at those.
///
/// Flags are rare, and mostly there are none. What sums flagged rows again is therefore launched as a few blocks that
/// look through all words, with all that a warp looks at in flight together: a block for each tile that finds nothing
/// took as long as a third of the product before it (docs/cuda.md). Words that lie next to each other are of
/// neighbouring rows, which often are flagged together, so they go to different blocks or warps as far as memory hands
/// them out separately.
#pragma once

#include "../device/tuning.hpp"
#include "../tensor/columns.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int fold_threads = warp_size * tuning::warps;
inline constexpr int fold_rows = tuning::warps * tuning::rows_per_thread;

/// Rows [r0, r1) of all batch items. flags has a word for each row and tile of columns, a bit for each lane.
struct fold_plan {
  columns cols{};
  index_t r0 = 0, r1 = 0;
  index_t row_tiles = 0, column_tiles = 0;
  std::uint32_t* flags = nullptr;
  bool only_flagged = false;  ///< only rows and lanes that are flagged already
  index_t launched = 0;       ///< blocks that share what is flagged

  AFT_HOST_DEVICE index_t blocks() const { return cols.batch_items() * row_tiles * column_tiles; }
  AFT_HOST_DEVICE index_t flag_words() const { return blocks() * fold_rows; }
};

inline fold_plan plan_fold(const columns& cols, index_t r0, index_t r1) {
  fold_plan plan;
  plan.cols = cols;
  plan.r0 = r0;
  plan.r1 = r1;
  plan.row_tiles = ceil_div(r1 - r0, fold_rows);
  plan.column_tiles = ceil_div(cols.count(), tuning::lanes);
  return plan;
}

/// The word of a row and a tile of columns of the plan's first batch item.
AFT_HOST_DEVICE index_t flag_word(const fold_plan& plan, index_t row, index_t column_tile) {
  const index_t r = row - plan.r0;
  return (r / fold_rows * plan.column_tiles + column_tile) * fold_rows + r % fold_rows;
}

/// What a block works on. Tiles of one row follow each other, so that the blocks that run together share w.
struct fold_place {
  index_t batch_item, first_row, first_column, tile;

  AFT_DEVICE static fold_place of(const fold_plan& plan, index_t block) {
    const index_t row_tile = quotient(block, plan.column_tiles);
    const index_t batch_item = quotient(row_tile, plan.row_tiles);
    return {batch_item, plan.r0 + (row_tile - batch_item * plan.row_tiles) * fold_rows,
            (block - row_tile * plan.column_tiles) * tuning::lanes, block};
  }
};

/// Tiles that a block looks at together, a word of flags a thread.
inline constexpr int tiles_at_once = fold_threads / fold_rows;
static_assert(warp_size % fold_rows == 0);

struct tile_looks {
  std::uint32_t words[tuning::warps];  ///< for each warp, which of its words are not 0
};

/// Bit i: something is flagged in tile first + i plan.launched. All threads of the block come here together.
AFT_DEVICE std::uint32_t flagged_tiles(const fold_plan& plan, index_t first, tile_looks& looks) {
  constexpr int tiles = warp_size / fold_rows;  // of a warp
  const index_t tile = first + thread_index() / fold_rows * plan.launched;
  const bool any = tile < plan.blocks() && plan.flags[tile * fold_rows + thread_index() % fold_rows] != 0;
  const std::uint32_t word = ballot(any);
  sync();  // everybody has read the last looks
  if (thread_index() % warp_size == 0) looks.words[thread_index() / warp_size] = word;
  sync();  // and the flags, before anybody writes one
  std::uint32_t flagged = 0;
  AFT_DEVICE_UNROLL
  for (int i = 0; i < tiles_at_once; ++i) {
    const std::uint32_t own = looks.words[i / tiles] >> (i % tiles * fold_rows);
    if ((own & ((1u << fold_rows) - 1u)) != 0) flagged |= 1u << i;
  }
  return flagged;
}

/// visit(place) for the block's tiles: one, or those of its share that have flags.
template <class Visit>
AFT_DEVICE void visit_tiles(const fold_plan& plan, tile_looks& looks, const Visit& visit) {
  const index_t step = plan.only_flagged ? tiles_at_once * plan.launched : plan.blocks();
  for (index_t first = block_index(); first < plan.blocks(); first += step) {
    const std::uint32_t wanted = plan.only_flagged ? flagged_tiles(plan, first, looks) : 1u;
    AFT_DEVICE_UNROLL_BY(1)
    for (int i = 0; i < tiles_at_once; ++i)
      if ((wanted >> i & 1u) != 0) visit(fold_place::of(plan, first + i * plan.launched));
  }
}

inline constexpr int exact_threads = 128;
inline constexpr int exact_warps = exact_threads / warp_size;

/// A lane's row and column of a plan's flags.
struct flagged_place {
  column col;
  index_t head, row;

  AFT_DEVICE static flagged_place of(const fold_plan& plan, index_t word) {
    const fold_place at = fold_place::of(plan, word / fold_rows);
    return {plan.cols.at(at.batch_item, at.first_column + thread_index() % warp_size), plan.cols.head(at.batch_item),
            at.first_row + word % fold_rows};
  }
};

/// visit(place) by the lane of each flag, for the warp's share of the words; plan.launched blocks of exact_threads.
template <class Visit>
AFT_DEVICE void visit_flagged(const fold_plan& plan, const Visit& visit) {
  constexpr int sector = 8;  // words that memory hands out together
  const int lane = thread_index() % warp_size;
  const index_t warp = block_index() * exact_warps + thread_index() / warp_size;
  const index_t warps = plan.launched * exact_warps;
  const index_t words = plan.flag_words();
  for (index_t first = 0; first < words; first += warps * warp_size) {
    const auto word_of = [&](int i) { return first + (i / sector * warps + warp) * sector + i % sector; };
    const std::uint32_t own = word_of(lane) < words ? plan.flags[word_of(lane)] : 0u;
    for (std::uint32_t left = ballot(own != 0); left != 0; left &= left - 1) {
      const int from = lowest_bit(left);
      if ((shuffle(own, from) >> lane & 1u) != 0) visit(flagged_place::of(plan, word_of(from)));
    }
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
