// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/pack_pairs.cuh  Both sides of the product that gives dw, as operand tiles in scratch.
///
///     dw[t,s] = e^w sum_j x[t,j] (e^k (v - m))[s,j] + (-x (o - m))[t,j] (e^k)[s,j],  x = e^-lse g
/// over the columns j = (b, c) of a head. m is a number near the averages, so that the two parts do not cancel where
/// values lie far from 0.
#pragma once

#include "../scan/keys.cuh"
#include "pack_queries.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int pair_rows = tuning::product_rows;
/// Of a tile: two numbers each.
inline constexpr int pair_columns = tuning::depth / 2;

/// 64 queries or keys, 16 columns.
struct alignas(16) pair_tile {
  std::byte operand[pair_rows * operand_row_bytes];
};

/// Tiles in the order (batch item, tile of rows, tile of columns); a row is in units of 2^row_unit, (batch item, row).
struct pair_side {
  columns cols{};
  index_t rows = 0, row_tiles = 0, column_tiles = 0;
  pair_tile* tiles = nullptr;
  int* exponents = nullptr;        ///< above no_exponent, so that memory of zeros is rows of nothing
  const float* centres = nullptr;  ///< (B, d)

  AFT_HOST_DEVICE index_t padded_rows() const { return row_tiles * pair_rows; }
  /// Of columns, for a block that packs.
  AFT_HOST_DEVICE index_t groups() const { return ceil_div(column_tiles * pair_columns, index_t{4 * warp_size}); }
  index_t pack_blocks() const { return cols.batch_items() * row_tiles * groups(); }
  index_t tile_count() const { return cols.batch_items() * row_tiles * column_tiles; }
  index_t row_count() const { return cols.batch_items() * padded_rows(); }
  AFT_DEVICE float row_unit(index_t row) const { return static_cast<float>(exponents[row]) + no_exponent<float>; }
};

inline pair_side plan_side(const columns& cols, index_t rows) {
  pair_side side;
  side.cols = cols;
  side.rows = rows;
  side.row_tiles = ceil_div(rows, pair_rows);
  side.column_tiles = ceil_div(cols.count(), pair_columns);
  return side;
}

/// A warp reads 32 columns of a row; so many rows are read at once.
inline constexpr int centre_rows = 8;
inline constexpr int centre_threads = centre_rows * warp_size;

template <class C>
struct centre_buffers {
  C low[centre_rows][warp_size], high[centre_rows][warp_size];
};

/// The centre of each column's averages, see average_range.
template <class C>
AFT_KERNEL(centre_threads, 4)
pair_centres_kernel(const AFT_PARAMETER device_call<C> p, C* centres) {
  centre_buffers<C>& parts = shared<centre_buffers<C>>();
  const int lane = thread_index() % warp_size;
  const int row = thread_index() / warp_size;
  const index_t i = block_index() * warp_size + lane;
  average_range<C> averages;
  if (i < p.B * p.d) {
    const column col{i / p.d, i % p.d, true};
    const auto rows = saved_column<C>::of(p, col);
    for (index_t t = row * burst<C>; t < p.Tq; t += centre_rows * burst<C>)
      averages.add(p, rows, t, part_of_burst<C>(p.Tq - t));
  }
  parts.low[row][lane] = averages.low;
  parts.high[row][lane] = averages.high;
  sync();
  if (row != 0 || i >= p.B * p.d) return;
  AFT_DEVICE_UNROLL
  for (int r = 1; r < centre_rows; ++r) {
    averages.add({parts.low[r][lane], parts.high[r][lane]});
  }
  centres[i] = averages.centre();
}

/// One factor as the two numbers of a column, in units of 2^exponent.
struct packed_pair {
  float first, second, exponent;
};

AFT_DEVICE packed_pair pair_of_query(float g, float o, float exponent, float centre) {
  // A row that sees nothing in this column, or whose incoming gradient is 0, adds nothing; what is no number stays.
  if (g == 0.0f && is_finite(o)) return {0.0f, 0.0f, no_exponent<float>};
  const float size = value_exponent(magnitude(g));
  const float x = tf32_operand::rounded(g * pow2<float>(-size));
  return {x, x * (centre - o), size - exponent};
}
AFT_DEVICE packed_pair pair_of_key(float key, float value, float centre) {
  if (key == -number<float>::infinity) return {0.0f, 0.0f, no_exponent<float>};
  const split_exp<float> e = stage_logit(key);
  const float x = tf32_operand::rounded(e.mantissa);
  return {x * (value - centre), x, e.exponent};
}

/// The size of a pair's larger number above no_exponent; what is no number leaves the row's unit to the others, and
/// spoils its sums.
AFT_DEVICE int pair_exponent(const packed_pair& x) {
  const float most = larger(magnitude(x.first), magnitude(x.second));
  const float size = x.exponent + value_exponent(most) - no_exponent<float>;
  return most == 0.0f || !(size > 0.0f) ? 0 : static_cast<int>(size);
}

inline constexpr int pack_pair_warps = pair_rows / burst<float>;
inline constexpr int pack_pair_threads = pack_pair_warps * warp_size;
/// Columns that a block goes through, 32 at a time.
inline constexpr int pack_pair_columns = 4 * warp_size;

/// Rows [row, row + 8) of a column, of queries or of keys.
template <bool queries>
AFT_DEVICE void read_pairs(const device_call<float>& p, const pair_side& side, const column& col, index_t row,
                           packed_pair (&x)[burst<float>]) {
  const index_t rest = col.exists && row < side.rows ? side.rows - row : 0;
  const int count = rest < burst<float> ? static_cast<int>(rest) : burst<float>;
  AFT_DEVICE_UNROLL
  for (int i = 0; i < burst<float>; ++i) x[i] = {0.0f, 0.0f, no_exponent<float>};
  if (count == 0) return;
  const float centre = side.centres[col.b * p.d + col.c];
  if constexpr (queries) {
    query_burst<float> q;
    saved_column<float>::of(p, col).read(p, row, 0, count, q);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<float>; ++i) x[i] = pair_of_query(q.g[i], q.o[i], q.exponent[i], centre);
  } else {
    float key[burst<float>], value[burst<float>];
    key_column<float>::of(p, col).read(p, row, 0, count, key, value);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<float>; ++i) x[i] = pair_of_key(key[i], value[i], centre);
  }
}

/// A block has the 64 rows of a tile, a warp eight of them, a lane a column: first for the rows' units, then, with
/// `units` known, for the tiles.
template <bool queries, bool units>
AFT_KERNEL(pack_pair_threads, 2)
pack_pairs_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pair_side side) {
  constexpr int n = burst<float>;
  const index_t groups = side.groups();
  const index_t row_block = quotient(block_index(), groups);
  const index_t batch_item = quotient(row_block, side.row_tiles);
  const index_t row_tile = row_block - batch_item * side.row_tiles;
  const int lane = thread_index() % warp_size;
  const int in_tile = thread_index() / warp_size * n;
  const index_t row = row_tile * pair_rows + in_tile;
  const index_t first_row = batch_item * side.padded_rows() + row;
  const index_t begin = (block_index() - row_block * groups) * pack_pair_columns;
  const index_t columns_packed = side.column_tiles * pair_columns;
  int most[n] = {};
  float unit[n] = {};
  AFT_DEVICE_UNROLL
  for (int i = 0; i < n; ++i)
    if (!units) unit[i] = side.row_unit(first_row + i);
  pair_tile* const tiles = side.tiles + (batch_item * side.row_tiles + row_tile) * side.column_tiles;
  const int in_row = lane % pair_columns;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t j = begin + lane; j < begin + pack_pair_columns && j < columns_packed; j += warp_size) {
    packed_pair x[n];
    read_pairs<queries>(p, side, side.cols.at(batch_item, j), row, x);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      if constexpr (units) {
        most[i] = max_of(most[i], pair_exponent(x[i]));
      } else {
        // pow2 has no value for what is no number; a row or key beyond the range is one of them.
        const float scale = x[i].exponent == x[i].exponent ? pow2<float>(x[i].exponent - unit[i]) : x[i].exponent;
        std::byte* const to = tiles[j / pair_columns].operand + chunk_at(in_tile + i, in_row / 2) + in_row % 2 * 8;
        *reinterpret_cast<two_floats*>(to) = {{x[i].first * scale, x[i].second * scale}};
      }
    }
  }
  if constexpr (units) {
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      AFT_DEVICE_UNROLL
      for (int mask = 1; mask < warp_size; mask *= 2) most[i] = max_of(most[i], shuffle_xor(most[i], mask));
      if (lane == i) raise_to(&side.exponents[first_row + i], most[i]);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
