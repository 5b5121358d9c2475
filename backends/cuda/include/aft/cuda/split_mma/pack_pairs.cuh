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

/// Tiles in the order (batch item, tile of rows, tile of columns); a row is in units of 2^exponent, (batch item, row).
struct pair_side {
  columns cols{};
  index_t rows = 0, row_tiles = 0, column_tiles = 0;
  pair_tile* tiles = nullptr;
  float* exponents = nullptr;
  const float* centres = nullptr;  ///< (B, d)

  AFT_HOST_DEVICE index_t padded_rows() const { return row_tiles * pair_rows; }
  index_t tile_count() const { return cols.batch_items() * row_tiles * column_tiles; }
  index_t row_count() const { return cols.batch_items() * padded_rows(); }
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
    for (index_t t = row; t < p.Tq; t += centre_rows) if (!is_padding(p, col.b, t)) averages.add(p, col, t, load<float>(p.average, p.positions, col.b, t, col.c));
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

AFT_DEVICE packed_pair pair_of_query(const device_call<float>& p, const column& col, index_t t, float centre) {
  const staged_query<float> q = stage_query(p, col.b, t, col.c);
  // A row that sees nothing in this column, or whose incoming gradient is 0, adds nothing; what is no number stays.
  if (q.g == 0.0f && is_finite(q.o)) return {0.0f, 0.0f, no_exponent<float>};
  const float x = tf32_operand::rounded(q.g * pow2<float>(-value_exponent(magnitude(q.g))));
  return {x, x * (centre - q.o), query_exponent(q)};
}
AFT_DEVICE packed_pair pair_of_key(const device_call<float>& p, const column& col, index_t s, float centre) {
  const float key = load_key(p, col.b, s, col.c);
  if (key == -number<float>::infinity) return {0.0f, 0.0f, no_exponent<float>};
  const split_exp<float> e = stage_logit(key);
  const float x = tf32_operand::rounded(e.mantissa);
  return {x * (load<float>(p.v, p.positions, col.b, s, col.c) - centre), x, e.exponent};
}

/// The size of a pair's larger number; what is no number leaves the row's unit to the others, and spoils its sums.
AFT_DEVICE float pair_exponent(const packed_pair& x) {
  const float most = larger(magnitude(x.first), magnitude(x.second));
  return most == 0.0f ? no_exponent<float> : x.exponent + value_exponent(most);
}

inline constexpr int pack_pair_warps = 4;

/// A warp packs a row of queries, or of keys.
template <bool queries>
AFT_KERNEL(pack_pair_warps* warp_size, 4)
pack_pairs_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pair_side side, const index_t count) {
  const index_t index = block_index() * pack_pair_warps + thread_index() / warp_size;
  if (index >= count) return;
  const int lane = thread_index() % warp_size;
  const index_t padded = side.padded_rows();
  const index_t batch_item = index / padded;
  const index_t row = index - batch_item * padded;
  const auto pair_at = [&](index_t j) -> packed_pair {
    const column col = side.cols.at(batch_item, j);
    if (!col.exists || row >= side.rows) return {0.0f, 0.0f, no_exponent<float>};
    const float centre = side.centres[col.b * p.d + col.c];
    return queries ? pair_of_query(p, col, row, centre) : pair_of_key(p, col, row, centre);
  };
  float unit = no_exponent<float>;
  for (index_t j = lane; j < side.cols.count(); j += warp_size) unit = larger(unit, pair_exponent(pair_at(j)));
  AFT_DEVICE_UNROLL
  for (int mask = 1; mask < warp_size; mask *= 2) unit = larger(unit, shuffle_xor(unit, mask));
  if (lane == 0) side.exponents[index] = unit;

  const int in_tile = static_cast<int>(row % pair_rows);
  const int in_row = lane % pair_columns;
  pair_tile* const tiles = side.tiles + (batch_item * side.row_tiles + row / pair_rows) * side.column_tiles;
  for (index_t j = lane; j < side.column_tiles * pair_columns; j += warp_size) {
    const packed_pair x = pair_at(j);
    // pow2 has no value for what is no number; a row or key beyond the range is one of them.
    const float scale = x.exponent == x.exponent ? pow2<float>(x.exponent - unit) : x.exponent;
    std::byte* const to = tiles[j / pair_columns].operand + chunk_at(in_tile, in_row / 2) + in_row % 2 * 8;
    *reinterpret_cast<two_floats*>(to) = {{x.first * scale, x.second * scale}};
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
