// SPDX-License-Identifier: Apache-2.0
/// @file bf16_gemm/pack_keys.cuh  [exp(k) v | exp(k)] as the right operand of the bfloat16 product.
#pragma once

#include "tiles.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int gemm_column_threads = 128;

/// A thread a column, of all tiles of channels: its units. Reads keys up to the first that is visible.
template <class C>
AFT_KERNEL(gemm_column_threads, 4)
gemm_columns_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan) {
  const index_t i = block_index() * gemm_column_threads + thread_index();
  if (i >= plan.right_columns()) return;
  const index_t batch_item = i / (plan.channel_tiles * gemm_channels);
  const column col = plan.rows.cols.at(batch_item, i - batch_item * plan.channel_tiles * gemm_channels);
  gemm_column found{no_exponent<float>, no_key, no_key};
  for (index_t s = 0; s < p.Tk && col.exists; ++s) {
    const float key = load_key(p, col.b, s, col.c);
    if (key == -number<float>::infinity) continue;
    if (found.first == no_key) found.first = static_cast<int>(s);
    if (key < -number<float>::range) continue;
    // One that is no number, or has no power, marks itself special when it is packed: any unit will do.
    found.unit = key <= number<float>::range ? exp_split(key).exponent : 0.0f;
    break;
  }
  plan.columns[i] = found;
}

/// A key of a column, in the column's units.
struct gemm_key {
  std::uint16_t num = 0, den = 0;
  bool special = false;

  AFT_DEVICE static gemm_key of(float key, float value, float unit) {
    gemm_key x;
    if (key == -number<float>::infinity) return x;
    const float size = magnitude(value);
    if (key < -number<float>::range) {
      // Rows that see no other key have a den of 0, and are not proven. A value that is no number stays, however low.
      x.special = !(unit >= ordinary_unit) || !(size <= gemm_most_value);
      return x;
    }
    const split_exp<float> e = stage_logit(key);
    x.special =
        !(e.exponent - unit <= gemm_reach) || !(size <= gemm_most_value) || (size < gemm_least_value && size != 0.0f);
    if (x.special) return x;
    return packed(e, value, unit);
  }
  /// Whether packed() is all that of() does.
  AFT_DEVICE static bool ordinary(float key, const split_exp<float>& e, float value, float unit) {
    const bool weight = magnitude(key) <= number<float>::range, near_unit = e.exponent - unit <= gemm_reach;
    const bool lower = magnitude(value) >= gemm_least_value, upper = magnitude(value) <= gemm_most_value;
    return weight & near_unit & (lower | (value == 0.0f)) & upper;
  }
  /// Rounded once for both, which rounds a weight alike in num and den.
  AFT_DEVICE static gemm_key packed(const split_exp<float>& e, float value, float unit) {
    gemm_key x;
    x.den = float_to_bfloat16(e.mantissa * pow2<float>(e.exponent - unit));
    x.num = float_to_bfloat16(bfloat16_to_float(x.den) * value);
    return x;
  }
};

inline constexpr int gemm_keys_threads = gemm_lane_tiles * warp_size;

/// Rows of a tile are a thread's own; from here they go to memory as whole lines.
struct packed_right {
  right_tile tiles[gemm_lane_tiles];

  /// By one warp, whose rows are written.
  AFT_DEVICE void copy_out(int lane_tile, right_tile& to) const {
    sync_warp();
    const int lane = thread_index() % warp_size;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof(right_tile)); i += warp_size * chunk_bytes) {
      const int at = i + lane * chunk_bytes;
      *reinterpret_cast<four_words*>(to.operand + at) =
          *reinterpret_cast<const four_words*>(tiles[lane_tile].operand + at);
    }
  }
};

/// What a thread packs: a channel of the tiles of one step of the depth.
struct packed_place {
  index_t batch_item, channel_tile, tile;
  index_t of_columns;  ///< its place among the plan's columns
  int lane_tile, lane;
  column col;

  AFT_DEVICE static packed_place of(const gemm_plan& plan) {
    const index_t stripe = quotient(block_index(), plan.right_tiles);
    packed_place at{};
    at.tile = block_index() - stripe * plan.right_tiles;
    at.batch_item = quotient(stripe, plan.channel_tiles);
    at.channel_tile = stripe - at.batch_item * plan.channel_tiles;
    at.of_columns = stripe * gemm_channels + thread_index();
    at.lane_tile = thread_index() / warp_size;
    at.lane = thread_index() % warp_size;
    at.col = plan.rows.cols.at(at.batch_item, at.channel_tile * gemm_channels + thread_index());
    return at;
  }
  /// The same for all lanes of a warp.
  AFT_DEVICE bool exists(const gemm_plan& plan) const { return lane_tile < plan.lane_tiles_in(channel_tile); }
  AFT_DEVICE right_tile& target(const gemm_plan& plan) const {
    return plan.right_of(batch_item, channel_tile, tile)[lane_tile];
  }
};

/// A block packs the tiles that a block of the product looks at, a thread a channel.
template <class C>
AFT_KERNEL(gemm_keys_threads, 6)
gemm_keys_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER gemm_plan plan) {
  packed_right& packed = shared<packed_right>();
  const packed_place at = packed_place::of(plan);
  if (!at.exists(plan)) return;
  const index_t s0 = at.tile * gemm_depth;
  gemm_column& own = plan.columns[at.of_columns];
  const float unit = own.unit;
  std::byte* const tile = packed.tiles[at.lane_tile].operand;
  key_column<float> column_keys;
  if (at.col.exists) column_keys = key_column<float>::of(p, at.col);
  int special = no_key;
  constexpr int keys = chunk_bytes / 2;
  static_assert(keys == burst<float>);
  AFT_DEVICE_UNROLL_BY(1)
  for (int chunk = 0; chunk < gemm_depth / keys; ++chunk) {
    const index_t s = s0 + chunk * keys;
    float key[keys], value[keys];
    column_keys.read(p, s, 0, keys, key, value);
    gemm_key x[keys];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < keys; ++i) {
      x[i] = gemm_key::of(key[i], value[i], unit);
      if (x[i].special && special == no_key) special = static_cast<int>(s + i);
    }
    four_words num, den;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      num.x[i] = two_halves(x[2 * i].num, x[2 * i + 1].num);
      den.x[i] = two_halves(x[2 * i].den, x[2 * i + 1].den);
    }
    *reinterpret_cast<four_words*>(tile + chunk_at(2 * at.lane, chunk)) = num;
    *reinterpret_cast<four_words*>(tile + chunk_at(2 * at.lane + 1, chunk)) = den;
  }
  packed.copy_out(at.lane_tile, at.target(plan));
  if (special != no_key) lower_to(&own.special, special);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
