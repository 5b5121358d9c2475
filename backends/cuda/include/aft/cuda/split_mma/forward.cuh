// SPDX-License-Identifier: Apache-2.0
/// @file split_mma/forward.cuh  The forward fold as a matrix product on the tensor cores: AFT Eq. 2, exp(w) times
/// exp(k) [v | 1].
///
/// Every tile of 32 keys has units of its own for each row and column, powers of two taken from what the row sees of
/// it. Rows whose sums are not proven (see `proven` below) are flagged, and the fold sums them again.
#pragma once

#include "partial_rows.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Rows [rows.r0, rows.r1) of all batch items; `rows` says where their flags are.
struct product_plan {
  fold_plan rows{};
  pack_plan keys{};
  index_t row_tiles = 0;

  index_t blocks() const { return rows.cols.batch_items() * row_tiles * rows.column_tiles; }
};

inline product_plan plan_product(const fold_plan& rows, const pack_plan& keys) {
  return {rows, keys, ceil_div(rows.r1 - rows.r0, product_rows)};
}

/// What a block works on. Tiles of one row follow each other, so that the blocks that run together share w.
struct product_place {
  index_t batch_item, first_row, column_tile;

  AFT_DEVICE static product_place of(const product_plan& plan, index_t block) {
    const index_t row_tile = block / plan.rows.column_tiles;
    const index_t batch_item = row_tile / plan.row_tiles;
    return {batch_item, plan.rows.r0 + (row_tile - batch_item * plan.row_tiles) * product_rows,
            block - row_tile * plan.rows.column_tiles};
  }
  /// This lane's. Asked for where it is needed: kept through the mainloop it would cost registers that are not there.
  AFT_DEVICE static column own_column(const product_plan& plan) {
    const product_place place = of(plan, block_index());
    return plan.rows.cols.at(place.batch_item, place.column_tile * tuning::lanes + thread_index() % warp_size);
  }
  AFT_DEVICE const packed_tile* tiles(const product_plan& plan) const {
    return plan.keys.tiles + (batch_item * plan.rows.column_tiles + column_tile) * plan.keys.key_tiles;
  }
  AFT_DEVICE index_t flag(const product_plan& plan, index_t row) const {
    const fold_plan& rows = plan.rows;
    return batch_item * rows.row_tiles * rows.column_tiles * fold_rows + flag_word(rows, row, column_tile);
  }
};

/// Sums of a block through shared memory: num and den of a pair meet in a thread's registers, and change hands so that
/// a warp has 32 columns of a row, which are whole lines to write and one word of flags.
template <int width>
AFT_DEVICE void hand_over(const row_sums& sums, const warp_tile& at, key_sum<float> (&to)[product_rows][width]) {
  AFT_DEVICE_UNROLL
  for (int m = 0; m < warp_tile::row_blocks; ++m) AFT_DEVICE_UNROLL
  for (int n = 0; n < warp_tile::column_blocks; ++n) AFT_DEVICE_UNROLL
  for (int half = 0; half < 2; ++half) to[at.row(m, half)][at.column(n)] = sums[m][n][half];
}

/// Of the mainloop, and after it of the epilogue.
union tensor_buffers {
  struct {
    packed_tile keys[2];
    weight_tile weights;
    union {
      float raw[product_rows][tuning::depth];
      hidden_buffers hidden;
    };
  } loop;
  struct {
    // Four columns more than there are: the eight rows that a warp writes at once then lie in different banks.
    key_sum<float> sums[product_rows][tuning::lanes + 4];
  } end;
};

/// Nothing that counts was lost: each of `terms` terms loses at most Operand::lost of a unit that is at most 2^top,
/// which is to be below 2^-25 of den; and num, which is at most den times the largest value, is to be far above the
/// denormal numbers. A den that is NaN fails every comparison.
template <class Operand>
AFT_DEVICE bool proven_product(const key_sum<float>& sum, float terms) {
  return proven(sum) && sum.den >= terms * (Operand::lost * 0x1p25f) &&
         (sum.largest == 0.0f || sum.den * sum.largest >= 0x1p-100f);
}

/// What becomes of the block's sums, which are in shared memory. Where it is and what it has seen is worked out once
/// more: the mainloop has no registers to remember it in.
template <class Operand>
AFT_DEVICE void product_epilogue(const device_call<float>& p, const product_plan& plan,
                                 const uniform_sums<key_sum<float>>& uniform, const tensor_buffers& buffers) {
  const fold_plan& rows = plan.rows;
  const product_place place = product_place::of(plan, block_index());
  const index_t first_row = place.first_row;
  const index_t t_end = first_row + product_rows < rows.r1 ? first_row + product_rows : rows.r1;
  const tile_span tiles_seen = tiles_of(window_keys_of(p, uniform, first_row, t_end));
  const int lane = thread_index() % warp_size;
  const column col = product_place::own_column(plan);
  const float terms = static_cast<float>(tiles_seen.end - tiles_seen.begin) * tuning::depth;
  AFT_DEVICE_UNROLL_BY(1)
  for (int r = thread_index() / warp_size; r < product_rows; r += tuning::product_warps) {
    const index_t t = first_row + r;
    if (t - rows.r0 >= rows.row_tiles * fold_rows) break;
    const bool wanted = col.exists && t < t_end;
    key_sum<float> sum = buffers.end.sums[r][lane];
    if (wanted) sum = with_uniform_keys(sum, uniform, tiles_seen, col.b, col.c);
    const bool done = wanted && settled(p, col.b, t, proven_product<Operand>(sum, terms));
    const std::uint32_t word = ballot(wanted && !done);
    if (lane == 0) rows.flags[place.flag(plan, t)] = word;
    if (!wanted || !done) continue;
    row_result<float> result;
    result.average = average_of(sum);
    result.den = sum.den;
    result.exponent = sum.max;
    row_epilogue(p, col.b, t, col.c, result);
  }
}

template <class Operand>
AFT_KERNEL(product_threads, 2)
product_kernel(const AFT_PARAMETER device_call<float> p, const AFT_PARAMETER product_plan plan,
               const AFT_PARAMETER uniform_sums<key_sum<float>> uniform) {
  tensor_buffers& buffers = shared<tensor_buffers>();
  const fold_plan& rows = plan.rows;
  const product_place place = product_place::of(plan, block_index());
  const index_t first_row = place.first_row;
  const index_t t_end = first_row + product_rows < rows.r1 ? first_row + product_rows : rows.r1;
  const index_t h = rows.cols.head(place.batch_item);
  const index_t b = rows.cols.batch(place.batch_item);
  const int lane = thread_index() % warp_size;
  const tile_span tiles_seen = tiles_of(window_keys_of(p, uniform, first_row, t_end));
  const warp_tile at = warp_tile::own();
  const packed_tile* const packed = place.tiles(plan);

  row_sums sums;
  {
    weight_part part;
    const bool plain = is_plain(p);
    const auto [begin, end] = tiles_seen;
    if (begin < end) {
      start_copy(packed[begin], buffers.loop.keys[begin % 2]);
      if (plain) load_plain(p, b, h, first_row, t_end, begin * index_t{tuning::depth}, part);
    }
    commit_copies();
    for (int tile = begin; tile < end; ++tile) {
      const index_t s0 = tile * index_t{tuning::depth};
      const packed_tile& own = buffers.loop.keys[tile % 2];
      sync();  // all threads have done with the weights, and with the keys of the tile before
      if (tile + 1 < end) start_copy(packed[tile + 1], buffers.loop.keys[(tile + 1) % 2]);
      commit_copies();
      if (!plain) load_any(p, b, h, first_row, t_end, s0, buffers.loop.raw, part);
      const int exist = p.Tk - s0 < tuning::depth ? static_cast<int>(p.Tk - s0) : tuning::depth;
      const bool any_part = pack_weights<Operand>(part, exist, buffers.loop.weights);
      wait_copies<1>();
      const bool hides = sync_any(any_part);
      if (plain && tile + 1 < end) load_plain(p, b, h, first_row, t_end, s0 + tuning::depth, part);
      tile_sums acc;
      if (ballot(buffers.loop.weights.view[at.first_row + lane] == row_view::all) != 0) {
        multiply_tile<Operand>(buffers.loop.weights.operand, own.operand, at, acc);
        merge_tile<Operand>(buffers.loop.weights, own, at, acc, sums);
      }
      if (!hides) continue;
      const column col = product_place::own_column(plan);
      AFT_DEVICE_UNROLL_BY(1)
      for (int i = 0; i < tuning::depth; i += hidden_depth) {
        sync();
        stage_hidden(p, col, b, h, first_row, t_end, s0 + i, buffers.loop.hidden);
        sync();
        add_hidden(buffers.loop.hidden, buffers.loop.weights.view, at, acc, sums);
      }
    }
    wait_copies<0>();
  }

  sync();
  hand_over(sums, at, buffers.end.sums);
  sync();
  product_epilogue<Operand>(p, plan, uniform, buffers);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
