// SPDX-License-Identifier: Apache-2.0
/// @file bias_gradient/pairs.cuh  dw[t,s] = sum over b and the channels of a head of a[t,s,c] g[t,c] (v[s,c] - o[t,c]).
#pragma once

#include "../device/tuning.hpp"
#include "../fold/saved_rows.cuh"
#include "../tensor/columns.cuh"
#include "../tensor/weights.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int pair_threads = tuning::pairs * tuning::pairs;

/// Batch items [first, first + count) of `cols` and queries [r0, r1); the tiles of keys cover the pairs inside the
/// window or filter. Results go to `out`, a matrix of pairs or of bands, or to `scratch`, (count, r1 - r0, width),
/// whose last axis is the key, the place in the window, or the tap of a filter.
template <class C>
struct pair_plan {
  columns cols{};
  index_t first = 0, count = 0, r0 = 0, r1 = 0;
  index_t row_tiles = 0, key_tiles = 0;
  bool limited = false;          ///< key tiles begin reach_before ahead of the rows
  index_t step = tuning::pairs;  ///< rows that have their key tiles in common, which begin at a multiple of it
  bool banded = false;           ///< there is a column for each place in the window
  matrix out{};
  C* scratch = nullptr;
  index_t width = 0;

  std::uint32_t* flags = nullptr;  ///< of each tile; where set, only the tiles that are not 0 are worked on

  index_t blocks() const { return count * row_tiles * key_tiles; }
  /// The first key of the first tile of the rows from t0 on.
  AFT_DEVICE index_t first_key(const device_call<C>& p, index_t t0) const {
    const index_t begin = limited ? r0 + (t0 - r0) / step * step - p.reach_before : 0;
    return begin < 0 ? 0 : begin / step * step;
  }
};

template <class C>
struct pair_buffers {
  staged_query<C> queries[tuning::pairs][tuning::pair_channels + 1];
  split_exp<C> keys[tuning::pairs][tuning::pair_channels + 1];
  C values[tuning::pairs][tuning::pair_channels + 1];
  column columns_of_chunk[tuning::pair_channels];
};

template <class C>
AFT_DEVICE void store_pair(const device_call<C>& p, const pair_plan<C>& plan, index_t batch_item, index_t t, index_t s,
                           C x) {
  if (plan.scratch != nullptr) {
    index_t place = s;
    if (plan.banded) {
      if (!inside(p, t, s)) return;
      place = s - t + p.bias.before;
    } else if (p.bias.kind == bias_kind::filter) {
      point tap{};
      if (!find_tap(p, t, s, tap)) return;
      place = (tap.x0 * p.bias.taps.n1 + tap.x1) * p.bias.taps.n2 + tap.x2;
    }
    plan.scratch[((batch_item - plan.first) * (plan.r1 - plan.r0) + t - plan.r0) * plan.width + place] = x;
    return;
  }
  // Entries outside the window have been cleared before; a band has no place for them.
  if (p.bias.bounded && !inside(p, t, s)) return;
  const matrix& m = plan.out;
  const index_t at = plan.cols.batch(batch_item) * m.sb + plan.cols.head(batch_item) * m.sh + t * m.sr +
                     (plan.banded ? s - t + p.bias.before : s) * m.sc;
  store<C>(m.data, m.type, at, x);
}

template <class C>
AFT_KERNEL(pair_threads, 2)
pair_gradient_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER pair_plan<C> plan) {
  if (plan.flags != nullptr && plan.flags[block_index()] == 0) return;
  pair_buffers<C>& tile = shared<pair_buffers<C>>();
  const index_t row_tile = block_index() / plan.key_tiles;
  const index_t batch_item = plan.first + row_tile / plan.row_tiles;
  const index_t t0 = plan.r0 + row_tile % plan.row_tiles * tuning::pairs;
  const index_t s0 = plan.first_key(p, t0) + block_index() % plan.key_tiles * tuning::pairs;
  const int across = thread_index() % tuning::pairs;
  const int down = thread_index() / tuning::pairs;
  const index_t t = t0 + down;
  const index_t s = s0 + across;
  const index_t h = plan.cols.head(batch_item);
  const index_t b = plan.cols.batch(batch_item);
  const bool exists = t < plan.r1 && s < p.Tk;
  // A mask that differs between batch elements under a bias that does not is asked column by column.
  const bool mask_by_column = pair_mask(p) && p.mask_sb != 0 && !plan.cols.batched;
  C w = -number<C>::infinity;
  // Without a column there may be no mask to read either.
  if (exists && plan.cols.count() > 0 && !place_hidden(p, t, s) && inside(p, t, s)) {
    const bool hidden = pair_mask(p) && !mask_by_column && mask_hides(p, b, t, s);
    if (!hidden) w = weight(p, b, h, t, s);
  }
  const split_exp<C> own = stage_logit(w);

  C sum = C(0);
  // A tile that nobody sees has nothing to add up.
  const index_t count = sync_any(own.mantissa != C(0)) ? plan.cols.count() : 0;
  for (index_t j0 = 0; j0 < count; j0 += tuning::pair_channels) {
    sync();
    {
      const column col = plan.cols.at(batch_item, j0 + across);
      if (down == 0) tile.columns_of_chunk[across] = col;
      const bool query = col.exists && t0 + down < plan.r1;
      tile.queries[down][across] = query ? stage_query(p, col.b, t0 + down, col.c) : staged_query<C>{C(0), C(0), C(0)};
      const C key = col.exists ? load_key(p, col.b, s0 + down, col.c) : -number<C>::infinity;
      const bool seen = key != -number<C>::infinity;
      tile.keys[down][across] = stage_logit(key);
      tile.values[down][across] = seen ? load<C>(p.v, p.positions, col.b, s0 + down, col.c) : C(0);
    }
    sync();
    if (own.mantissa == C(0)) continue;
    C part = C(0);
    AFT_DEVICE_UNROLL_BY(2)
    for (int c = 0; c < tuning::pair_channels; ++c) {
      const split_exp<C> key = tile.keys[across][c];
      if (key.mantissa == C(0)) continue;
      if (mask_by_column && mask_hides(p, tile.columns_of_chunk[c].b, t, s)) continue;
      const staged_query<C> query = tile.queries[down][c];
      const C e = key.exponent + own.exponent - query.exponent;
      C factor;
      if (e == e) {
        factor = key.mantissa * own.mantissa * pow2<C>(e);
      } else {
        const column& col = tile.columns_of_chunk[c];
        const saved_row<C> u = load_saved_row(p, col.b, t, col.c);
        if (u.inverse == C(0)) continue;
        factor = exact_weight(u, load_key(p, col.b, s, col.c), w);
      }
      part = add_difference(factor * query.g, tile.values[across][c], query.o, part);
    }
    sum += part;
  }
  if (exists) store_pair(p, plan, batch_item, t, s, sum);
}

inline constexpr int clear_threads = 256;

/// Zeros in a matrix (batch, heads, rows, width).
template <class C>
AFT_KERNEL(clear_threads, 4)
clear_kernel(const AFT_PARAMETER matrix m, const index_t batch, const index_t heads, const index_t rows,
             const index_t width) {
  const index_t i = block_index() * clear_threads + thread_index();
  if (i >= batch * heads * rows * width) return;
  const index_t row = i / width;
  const index_t head = row / rows;
  store<C>(m.data, m.type, head / heads * m.sb + head % heads * m.sh + row % rows * m.sr + i % width * m.sc, C(0));
}

}  // namespace aft::inline AFT_ISA::cuda_impl
