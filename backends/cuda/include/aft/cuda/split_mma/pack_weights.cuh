// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/pack_weights.cuh  exp(w) of a tile as operands in shared memory, converted on the way from the bias.
#pragma once

#include "../tensor/weights.cuh"
#include "operands.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int product_threads = warp_size * tuning::product_warps;
inline constexpr int product_rows = tuning::product_rows;

/// What a row sees of a tile. Rows that see all of its keys take the tensor cores. Where a pair is hidden that its key
/// alone does not hide, 0 times what is behind it could be NaN, and the tile's units could come from the future, so
/// such a row is summed pair by pair.
enum class row_view : int { none, part, all };

struct alignas(16) weight_tile {
  std::byte operand[product_rows * operand_row_bytes];
  float exponent[product_rows];  ///< the row's weights are in units of 2^exponent
  row_view view[product_rows];
};

/// A thread's part of a tile of w: 4 keys of each row_step-th row, so that a warp reads whole lines.
struct weight_part {
  static constexpr int row_threads = tuning::depth / 4;
  static constexpr int row_step = product_threads / row_threads;
  static constexpr int rows = product_rows / row_step;
  float w[rows][4];
};

/// Whether w lies in memory pair by pair. Such weights are read a tile ahead, so that the reads pass while the tensor
/// cores work; others need too many instructions to be written out for every pair, and are read when they are staged.
AFT_DEVICE bool is_plain(const device_call<float>& p) {
  return p.bias.kind == bias_kind::dense && !p.bias.bounded;
}

/// -inf where there is no pair, or a hidden one.
template <class Storage>
AFT_DEVICE void load_as(const device_call<float>& p, const std::byte* origin, index_t t0, index_t t_end, index_t s,
                        weight_part& part) {
  AFT_DEVICE_UNROLL
  for (int r = 0; r < weight_part::rows; ++r) {
    const index_t t = t0 + r * weight_part::row_step;
    const auto* const row = reinterpret_cast<const Storage*>(origin) + (t - p.bias.row) * p.bias.w.sr;
    index_t end = p.causal && t + p.diagonal < p.Tk ? t + p.diagonal + 1 : p.Tk;
    if (t >= t_end) end = 0;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      float w = -number<float>::infinity;
      if (s + i < end) {
        const Storage raw = row[(s + i - p.bias.column) * p.bias.w.sc];
        if constexpr (sizeof(Storage) == sizeof(float)) {
          w = raw;
        } else {
          w = p.bias.w.type == dtype::bf16 ? bfloat16_to_float(raw) : half_to_float(raw);
        }
      }
      part.w[r][i] = w;
    }
  }
}
AFT_DEVICE void load_plain(const device_call<float>& p, index_t b, index_t h, index_t t0, index_t t_end, index_t s0,
                           weight_part& part) {
  const index_t s = s0 + thread_index() % weight_part::row_threads * 4;
  const index_t t = t0 + thread_index() / weight_part::row_threads;
  const index_t size = p.bias.w.type == dtype::f32 ? 4 : 2;
  const std::byte* const origin = p.bias.w.data + ((p.bias.batched ? b : 0) * p.bias.w.sb + h * p.bias.w.sh) * size;
  if (size == 4) return load_as<float>(p, origin, t, t_end, s, part);
  load_as<std::uint16_t>(p, origin, t, t_end, s, part);
}

/// The same for any bias, by way of shared memory, where every thread keeps to places of its own.
AFT_DEVICE void load_any(const device_call<float>& p, index_t b, index_t h, index_t t0, index_t t_end, index_t s0,
                         float (&raw)[product_rows][tuning::depth], weight_part& part) {
  const int first = thread_index() % weight_part::row_threads * 4;
  AFT_DEVICE_UNROLL_BY(1)
  for (int i = 0; i < weight_part::rows * 4; ++i) {
    const int row = thread_index() / weight_part::row_threads + i / 4 * weight_part::row_step;
    const index_t t = t0 + row;
    const index_t s = s0 + first + i % 4;
    raw[row][first + i % 4] = t < t_end && s < p.Tk ? visible_weight(p, b, h, t, s) : -number<float>::infinity;
  }
  AFT_DEVICE_UNROLL
  for (int r = 0; r < weight_part::rows; ++r) AFT_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i)
    part.w[r][i] = raw[thread_index() / weight_part::row_threads + r * weight_part::row_step][first + i];
}

/// Whether any of this thread's rows sees a part of the tile only. `keys`: how many of the tile's keys exist.
template <class Operand>
AFT_DEVICE bool pack_weights(const weight_part& part, int keys, weight_tile& tile) {
  const int first = thread_index() % weight_part::row_threads * 4;
  // The threads of a row are neighbours in one warp: a byte of its ballots.
  const int byte = thread_index() % warp_size / weight_part::row_threads * weight_part::row_threads;
  constexpr std::uint32_t all = (1u << weight_part::row_threads) - 1;
  bool any_part = false;
  AFT_DEVICE_UNROLL
  for (int r = 0; r < weight_part::rows; ++r) {
    const int row = thread_index() / weight_part::row_threads + r * weight_part::row_step;
    split_exp<float> e[4];
    float top = no_exponent<float>;
    bool sees = false, hides = false;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      e[i] = stage_logit(part.w[r][i]);
      top = larger(top, e[i].exponent);
      const bool hidden = part.w[r][i] == -number<float>::infinity;
      sees = sees || !hidden;
      hides = hides || (hidden && first + i < keys);
    }
    AFT_DEVICE_UNROLL
    for (int mask = 1; mask < weight_part::row_threads; mask *= 2) top = larger(top, shuffle_xor(top, mask));
    const bool row_sees = (ballot(sees) >> byte & all) != 0;
    const bool row_hides = (ballot(hides) >> byte & all) != 0;
    float x[4];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = e[i].mantissa * pow2<float>(e[i].exponent - top + Operand::shift);
    Operand::store(tile.operand, row, first / 4, x);
    if (first == 0) {
      tile.exponent[row] = top;
      tile.view[row] = !row_sees ? row_view::none : (row_hides ? row_view::part : row_view::all);
    }
    any_part = any_part || (row_sees && row_hides);
  }
  return any_part;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
