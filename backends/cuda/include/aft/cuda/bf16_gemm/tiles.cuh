// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/tiles.cuh  The bfloat16 product of a forward call: exp(w) [exp(k) v | exp(k)], AFT Eq. 2.
///
/// Both sides lie in scratch as tiles that are byte for byte what shared memory holds, so that the product only copies
/// and multiplies: rows of 64 keys in 128 bytes, with their 16-byte chunks in the order of chunk_at(), which is the
/// 128-byte swizzle of wgmma's descriptors too.
///
/// A row of A is in units of its largest weight, which it sees itself. A column of B is in units of the first key that
/// no length and no mask hides: every row that sees anything of the column sees it (a causal row nothing before it),
/// but for a -inf in the bias. Units are powers of two, which change no bit of a sum within the range of float. What
/// does not fit a column's units is left out (0) and marked, and no row that may see it is proven: 0 times NaN is NaN,
/// also in rows that do not see it.
#pragma once

#include "../fold/forward.cuh"
#include "../split_mma/operands.cuh"
#include "sides.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

using tuning::gemm_channels;
using tuning::gemm_depth;
using tuning::gemm_rows;

inline constexpr int gemm_lane_tiles = gemm_channels / tuning::lanes;
static_assert(gemm_depth * 2 == operand_row_bytes);
static_assert(gemm_rows % fold_rows == 0, "blocks of rows end where words of flags do");

struct alignas(chunk_bytes) left_tile {
  std::byte operand[gemm_rows * operand_row_bytes];
};
/// Num and den of 32 channels side by side. A block looks at four, or as many as there are.
struct alignas(chunk_bytes) right_tile {
  std::byte operand[2 * tuning::lanes * operand_row_bytes];
};

/// Bounds that let a sum of up to 2^16 terms be proven by den alone. In units of its row and column a term's factors
/// are below 1.42 and 1.42 2^reach, v is 0 or within 2^-reach and 2^reach, and den is at least least_den. An operand
/// below the normal numbers may be lost: of A that is 2^-126 1.42 2^reach a term, of exp(k) v 1.42 2^-126. With 2^16
/// terms both are below 2^-25 of den, and of den max|v|. Nothing overflows: 2^(16 + 1 + 2 reach).
inline constexpr float gemm_reach = 50.0f;
inline constexpr float gemm_least_value = 0x1p-50f, gemm_most_value = 0x1p50f;
inline constexpr float gemm_least_den = 0x1p-32f;
static_assert(tuning::gemm_keys <= 65536);
/// Finite logits far below all others are how some callers hide pairs, finfo.min for one. They count as 0 beside one of
/// ordinary_logit or more: e^(ordinary_logit - range) is below 2^-138.
inline constexpr float ordinary_logit = -4000.0f;
inline constexpr float ordinary_unit = -5770.0f;  ///< as a power of two

inline constexpr int no_key = 0x7fffffff;

/// A column (b, c): 2^unit is that of its first visible key that is not far below all others; `special` is the first
/// key that does not fit.
struct gemm_column {
  float unit;
  int first, special;
};

/// A column of the product that gives dk and dv: e^-lse g is in units of 2^unit, its largest, and o - centre in units
/// of 2^value_unit. `largest`: of |g|, as a power of two. `special`: minus the last query that cannot be an operand.
struct query_column {
  float unit, largest, centre, value_unit;
  int special;
};

/// Rows [first, last) of all batch items; `rows` says which rows the flags are of. Left tiles are in the order (batch
/// item, tile of rows, tile of keys that it looks at), right ones (batch item, tile of channels, tile of keys, 32 of
/// the channels).
struct gemm_plan {
  fold_plan rows{};
  index_t first = 0, last = 0;
  index_t row_tiles = 0, channel_tiles = 0;
  index_t lane_tiles = 0;   ///< of a batch item, which need not fill its last tile of channels
  index_t left_tiles = 0;   ///< of keys, for one tile of rows at most
  index_t right_tiles = 0;  ///< of keys, for one tile of channels
  left_tile* left = nullptr;
  float* row_units = nullptr;  ///< no_exponent for a row that sees nothing, NaN for one that cannot be a product
  right_tile* right = nullptr;
  gemm_column* columns = nullptr;
  query_column* query_columns = nullptr;  ///< where rows are keys
  index_t launched = 0;                   ///< blocks that share the work, where it is not one each

  AFT_HOST_DEVICE index_t blocks() const { return rows.cols.batch_items() * row_tiles * channel_tiles; }
  AFT_HOST_DEVICE index_t left_rows() const { return rows.cols.batch_items() * row_tiles * gemm_rows; }
  AFT_HOST_DEVICE index_t right_columns() const { return rows.cols.batch_items() * channel_tiles * gemm_channels; }
  AFT_HOST_DEVICE index_t right_blocks() const { return rows.cols.batch_items() * channel_tiles * right_tiles; }
  AFT_HOST_DEVICE index_t right_count() const { return rows.cols.batch_items() * lane_tiles * right_tiles; }
  /// How many there are in a tile of channels.
  AFT_DEVICE int lane_tiles_in(index_t channel_tile) const {
    const index_t rest = lane_tiles - channel_tile * gemm_lane_tiles;
    return rest < gemm_lane_tiles ? static_cast<int>(rest) : gemm_lane_tiles;
  }
  AFT_DEVICE right_tile* right_of(index_t batch_item, index_t channel_tile, index_t tile) const {
    const index_t before = batch_item * lane_tiles + channel_tile * gemm_lane_tiles;
    return right + before * right_tiles + tile * lane_tiles_in(channel_tile);
  }
};

/// All keys, and as many tiles of rows at once as the scratch for the left side holds: at least one, of 256 bytes for
/// each key and batch item. `left_tiles`: the most tiles of keys that a tile of rows looks at.
inline gemm_plan plan_gemm(const columns& cols, index_t queries, index_t keys, index_t left_tiles,
                           index_t left_bytes = tuning::gemm_bytes) {
  gemm_plan plan;
  plan.rows.cols = cols;
  plan.lane_tiles = ceil_div(cols.count(), tuning::lanes);
  plan.channel_tiles = ceil_div(plan.lane_tiles, gemm_lane_tiles);
  plan.right_tiles = ceil_div(keys, gemm_depth);
  plan.left_tiles = min_of(plan.right_tiles, left_tiles);
  const index_t all = ceil_div(queries, gemm_rows);
  const index_t row_bytes = cols.batch_items() * plan.left_tiles * static_cast<index_t>(sizeof(left_tile));
  const index_t fit = row_bytes == 0 ? all : left_bytes / row_bytes;
  plan.row_tiles = fit < 1 ? 1 : min_of(all, fit);
  return plan;
}

/// Of `whole`, the part that begins at row `first` of `rows`.
inline gemm_plan plan_rows(const gemm_plan& whole, const fold_plan& rows, index_t first) {
  gemm_plan plan = whole;
  const index_t step = whole.row_tiles * gemm_rows;
  plan.rows = rows;
  plan.first = first;
  plan.last = min_of(rows.r1, first + step);
  plan.row_tiles = ceil_div(plan.last - plan.first, gemm_rows);
  return plan;
}

/// What a block works on.
struct gemm_place {
  index_t batch_item, row_tile, channel_tile;
  index_t first_row, last_row;
  int begin, end;  ///< tiles of keys

  /// Blocks that run together are a group of row tiles by a few channel tiles, so that they share both sides. Causal,
  /// the longest rows come first.
  template <class Side>
  AFT_DEVICE static gemm_place of(const device_call<float>& p, const uniform_sums<typename Side::fold>& uniform,
                                  const gemm_plan& plan, index_t block) {
    const index_t within = plan.row_tiles * plan.channel_tiles;
    const index_t batch_item = quotient(block, within);
    const index_t rest = block - batch_item * within;
    const index_t group = quotient(rest, tuning::gemm_group * plan.channel_tiles);
    const index_t first = group * tuning::gemm_group;
    const index_t left = plan.row_tiles - first;
    const index_t height = min_of(tuning::gemm_group, left);
    const index_t at = rest - first * plan.channel_tiles;
    const index_t across = quotient(at, height);
    const index_t tile = first + (at - across * height);
    const bool last_first = p.causal && !Side::are_keys;
    return of_rows<Side>(p, uniform, plan, batch_item, last_first ? plan.row_tiles - 1 - tile : tile, across);
  }
  template <class Side>
  AFT_DEVICE static gemm_place of_rows(const device_call<float>& p, const uniform_sums<typename Side::fold>& uniform,
                                       const gemm_plan& plan, index_t batch_item, index_t row_tile,
                                       index_t channel_tile) {
    gemm_place place{batch_item, row_tile, channel_tile, plan.first + row_tile * gemm_rows, plan.last, 0, 0};
    if (place.first_row + gemm_rows < plan.last) place.last_row = place.first_row + gemm_rows;
    const span keys = Side::near_rows(p, uniform, place.first_row, place.last_row);
    place.begin = static_cast<int>(keys.lo / gemm_depth);
    place.end = keys.lo < keys.hi ? static_cast<int>(ceil_div(keys.hi, gemm_depth)) : place.begin;
    return place;
  }
  AFT_DEVICE const left_tile& left(const gemm_plan& plan, int tile) const {
    return plan.left[(batch_item * plan.row_tiles + row_tile) * plan.left_tiles + (tile - begin)];
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
