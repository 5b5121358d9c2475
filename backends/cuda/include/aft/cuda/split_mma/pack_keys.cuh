// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/pack_keys.cuh  exp(k) v and exp(k) as operand tiles in scratch, byte for byte what shared memory
/// holds.
#pragma once

#include "../tensor/columns.cuh"
#include "operands.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Columns 2j and 2j + 1 of the product are num and den of column j, so that both end in one thread. A tile's weights
/// are in units of 2^exponent, its values in units of 2^value_exponent: both from this column's own keys of this tile,
/// so that nothing else reaches a row's bits.
struct alignas(16) packed_tile {
  std::byte operand[2 * tuning::lanes * operand_row_bytes];
  float exponent[tuning::lanes];
  float value_unit[tuning::lanes];  ///< 2^value_exponent
  float largest[tuning::lanes];     ///< of |v|
};
static_assert(sizeof(packed_tile) % chunk_bytes == 0);

/// Tiles in the order (batch item, tile of columns, tile of keys).
struct pack_plan {
  columns cols{};
  index_t column_tiles = 0, key_tiles = 0;
  packed_tile* tiles = nullptr;

  index_t count() const { return cols.batch_items() * column_tiles * key_tiles; }
};

inline pack_plan plan_pack(const columns& cols, index_t keys) {
  return {cols, ceil_div(cols.count(), tuning::lanes), ceil_div(keys, tuning::depth), nullptr};
}

inline constexpr int pack_warps = 4;
inline constexpr int pack_threads = pack_warps * warp_size;

/// A warp packs a tile, a lane a column. Reads k and v twice, once for the maxima.
template <class Operand>
AFT_KERNEL(pack_threads, 4)
pack_keys_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER pack_plan plan, const index_t count) {
  const index_t index = block_index() * pack_warps + thread_index() / warp_size;
  if (index >= count) return;
  const int lane = thread_index() % warp_size;
  const index_t stripe = index / plan.key_tiles;
  const index_t s0 = (index - stripe * plan.key_tiles) * tuning::depth;
  const index_t batch_item = stripe / plan.column_tiles;
  const column col = plan.cols.at(batch_item, (stripe - batch_item * plan.column_tiles) * tuning::lanes + lane);
  packed_tile& tile = plan.tiles[index];

  float exponent = no_exponent<float>, largest = 0.0f;
  for (int i = 0; i < tuning::depth && col.exists; ++i) {
    const float key = load_key(p, col.b, s0 + i, col.c);
    if (key == -number<float>::infinity) continue;
    exponent = larger(exponent, stage_logit(key).exponent);
    largest = larger(largest, magnitude(load<float>(p.v, p.positions, col.b, s0 + i, col.c)));
  }
  const float unit = value_exponent(largest);
  const float scale = pow2<float>(-unit);
  AFT_DEVICE_UNROLL_BY(1)
  for (int group = 0; group < tuning::depth / 4; ++group) {
    float num[4], den[4];
    AFT_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      num[i] = den[i] = 0.0f;
      const index_t s = s0 + group * 4 + i;
      const float key = col.exists ? load_key(p, col.b, s, col.c) : -number<float>::infinity;
      if (key == -number<float>::infinity) continue;
      const split_exp<float> e = stage_logit(key);
      // Rounded once for both, which rounds a weight alike in num and den.
      den[i] = Operand::rounded(e.mantissa * pow2<float>(e.exponent - exponent + Operand::shift));
      num[i] = den[i] * (load<float>(p.v, p.positions, col.b, s, col.c) * scale);
    }
    Operand::store(tile.operand, 2 * lane, group, num);
    Operand::store(tile.operand, 2 * lane + 1, group, den);
  }
  tile.exponent[lane] = exponent;
  tile.value_unit[lane] = pow2<float>(unit);
  tile.largest[lane] = largest;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
