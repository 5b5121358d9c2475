// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/line_epilogue.cuh  gemm_epilogue for q, y and what else is written in lines: a lane has eight
/// channels of a row.
#pragma once

#include "../tensor/access.cuh"
#include "epilogue.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Channels of a lane: a whole access of bfloat16. Four lanes have a row of the sums.
inline constexpr int wide_channels = line_alignment / 2;
inline constexpr int wide_lanes = tuning::lanes / wide_channels;
static_assert(gemm_sums::rows * wide_lanes == warp_size);
inline constexpr std::uint32_t all_channels = (1u << wide_channels) - 1;

AFT_DEVICE void load_line(const std::byte* from, float (&x)[wide_channels]) {
  const auto words = load_words<four_words>(from);
  AFT_DEVICE_UNROLL
  for (int i = 0; i < wide_channels; ++i) x[i] = bfloat16_of(words, i);
}

/// Those of `shown` alone, to memory of float or bfloat16. The others may be q, which is still to be read.
AFT_DEVICE void store_line(std::byte* to, dtype type, const float (&x)[wide_channels], std::uint32_t shown) {
  if (shown != all_channels) {
    AFT_DEVICE_UNROLL_BY(1)
    for (int j = 0; j < wide_channels; ++j) {
      float own = x[0];
      AFT_DEVICE_UNROLL
      for (int i = 1; i < wide_channels; ++i) own = i == j ? x[i] : own;
      if ((shown >> j & 1u) != 0) store<float>(to, type, j, own);
    }
  } else if (type == dtype::f32) {
    store_words(to, four_floats{{x[0], x[1], x[2], x[3]}});
    store_words(to + line_alignment, four_floats{{x[4], x[5], x[6], x[7]}});
  } else {
    four_words words;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) words.x[i] = two_halves(float_to_bfloat16(x[2 * i]), float_to_bfloat16(x[2 * i + 1]));
    store_words(to, words);
  }
}

/// Where the channels of a lane lie in row t.
AFT_DEVICE std::byte* line_at(const tensor& x, index_t b, index_t t, index_t c) {
  return x.data + (b * x.sb + t * x.s2 + c) * (x.type == dtype::f32 ? 4 : 2);
}

/// What a lane of the epilogue works on.
struct line_row {
  index_t t, column_tile, of_columns;
  column col;  ///< of its first channel
  int row, group;
  bool exists;

  AFT_DEVICE static line_row of(const gemm_plan& plan, const gemm_place& place, int row, int lane_tile) {
    line_row at{};
    at.row = thread_index() % warp_size / wide_lanes;
    at.group = thread_index() % wide_lanes;
    at.t = place.first_row + row + at.row;
    at.column_tile = place.channel_tile * gemm_lane_tiles + lane_tile;
    const int first = at.group * wide_channels;
    at.col = plan.rows.cols.at(place.batch_item, at.column_tile * tuning::lanes + first);
    const index_t stripe = place.batch_item * plan.channel_tiles + place.channel_tile;
    at.of_columns = stripe * gemm_channels + lane_tile * tuning::lanes + first;
    at.exists = at.col.exists && at.t < place.last_row;
    return at;
  }
  AFT_DEVICE float unit(const gemm_plan& plan, const gemm_place& place, int first_row) const {
    const index_t tile = place.batch_item * plan.row_tiles + place.row_tile;
    return plan.row_units[tile * gemm_rows + first_row + row];
  }
  /// The flags of all lanes of a row make its word; words of rows that do not exist, up to whole tiles, are read too.
  AFT_DEVICE void flag(const gemm_plan& plan, const gemm_place& place, std::uint32_t shown) const {
    std::uint32_t word = exists ? (~shown & all_channels) << (group * wide_channels) : 0u;
    AFT_DEVICE_UNROLL
    for (int mask = 1; mask < wide_lanes; mask *= 2) word |= shuffle_xor(word, mask);
    const fold_plan& rows = plan.rows;
    if (group != 0 || t - rows.r0 >= rows.row_tiles * fold_rows) return;
    rows.flags[place.batch_item * rows.row_tiles * rows.column_tiles * fold_rows + flag_word(rows, t, column_tile)] =
        word;
  }
};

/// Four columns by whole accesses: their units, first keys and special ones.
struct four_columns {
  four_words parts[3];

  AFT_DEVICE static four_columns of(const gemm_column* from) {
    four_columns all;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 3; ++i)
      all.parts[i] = load_words<four_words>(reinterpret_cast<const std::byte*>(from) + i * line_alignment);
    return all;
  }
  AFT_DEVICE std::uint32_t raw(int i) const { return parts[i / 4].x[i % 4]; }
  AFT_DEVICE gemm_column operator[](int j) const {
    return {from_bits<float>(raw(3 * j)), static_cast<int>(raw(3 * j + 1)), static_cast<int>(raw(3 * j + 2))};
  }
};
static_assert(sizeof(gemm_column) == 12);

AFT_DEVICE void line_epilogue(const device_call<float>& p, const gemm_plan& plan,
                              const uniform_sums<key_sum<float>>& uniform, const gemm_place& place, gemm_sums& sums,
                              int row, int lane_tile) {
  constexpr int n = wide_channels;
  const line_row at = line_row::of(plan, place, row, lane_tile);
  if (at.column_tile >= plan.rows.column_tiles) return;
  const index_t b = at.col.b, c = at.col.c;
  const bool padding = at.exists && is_padding(p, b, at.t);
  float q[n] = {}, average[n] = {}, lse[n] = {};
  // Of padding q may be no number, and y is 0 all the same.
  if (at.exists && !padding && p.y.set && p.gate_fn != gate::none) load_line(line_at(p.q, b, at.t, c), q);
  std::uint32_t shown = padding ? all_channels : 0u;
  AFT_DEVICE_UNROLL
  for (int j = 0; j < n; ++j) lse[j] = -number<float>::infinity;
  if (at.exists && !padding) {
    const gemm_sight sight = gemm_sight::of(p, at.t, at.unit(plan, place, row));
    const gemm_column* const columns = plan.columns + at.of_columns;
    two_floats* const pairs = &sums.pair[at.row][at.group * n];
    if (uniform.used) {
      // Through the sums' own place, as a register cannot be named by a number that is not known.
      const tile_span inner = tiles_of(window_keys_of(p, uniform, place.first_row, place.last_row));
      AFT_DEVICE_UNROLL_BY(1)
      for (int j = 0; j < n; ++j) {
        const gemm_row found = prove_joined(uniform, inner, b, c + j, sight, columns[j], pairs[j]);
        shown |= found.shown ? 1u << j : 0u;
        pairs[j] = {{found.sums.average, p.lse.set ? short_log_sum(found.sums) : 0.0f}};
      }
      AFT_DEVICE_UNROLL
      for (int j = 0; j < n; ++j) {
        average[j] = pairs[j].x[0];
        lse[j] = pairs[j].x[1];
      }
    } else {
      AFT_DEVICE_UNROLL
      for (int first = 0; first < n; first += 4) {
        const four_columns own = four_columns::of(columns + first);
        AFT_DEVICE_UNROLL
        for (int j = first; j < first + 4; ++j) {
          const gemm_row found = prove_tiles(sight, own[j - first], pairs[j]);
          shown |= found.shown ? 1u << j : 0u;
          average[j] = found.sums.average;
          lse[j] = found.sums.den;
        }
      }
      if (p.lse.set) {
        row_result<float> of_row;
        AFT_DEVICE_UNROLL
        for (int j = 0; j < n; ++j) {
          of_row.den = lse[j];
          of_row.exponent = sight.unit + columns[j].unit;
          lse[j] = short_log_sum(of_row);
        }
      }
    }
  }
  at.flag(plan, place, shown);
  if (!at.exists) return;
  if (p.lse.set) store_line(line_at(p.lse, b, at.t, c), p.lse.type, lse, shown);
  if (p.average.set) store_line(line_at(p.average, b, at.t, c), p.average.type, average, shown);
  if (!p.y.set) return;
  apply_gate(p.gate_fn, q, average);
  // y may be q itself: a lane has read all that it writes.
  store_line(line_at(p.y, b, at.t, c), dtype::bf16, average, shown);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
