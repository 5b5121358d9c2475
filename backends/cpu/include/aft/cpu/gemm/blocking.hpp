// SPDX-License-Identifier: Apache-2.0
/// @file gemm/blocking.hpp  Block sizes and buffers of a call of the tile engine.
#pragma once

#include "../runtime/workspace.hpp"
#include "../tensor/stage.hpp"
#include "geometry.hpp"
#include "pack_weights.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// What a lane tile's columns were divided by; filled when they are packed, read when a panel is finished.
template <class C>
struct column_scale {
  C exponent[lanes<C>];
  C base[lanes<C>];
  C inverse_scale[lanes<C>];  ///< the values' power of two
  C unit[lanes<C>];           ///< see first_key
  C floor[lanes<C>];          ///< |num| below floor * den proves nothing; 0 where no value is that small
  C lift[lanes<C>];           ///< transposed fold: the power of two that g o was multiplied by besides
  C unlift[lanes<C>];         ///< its inverse
  C more[2 * lanes<C>];       ///< the column of what rows see besides, if pair_geometry says that there is such
};

/// Room for what a window_packer knows of one lane tile. That of a wide group would be a quarter of a small stack.
template <class C>
struct alignas(64) source_room {
  std::byte bytes[13 * sizeof(vec<C>)];
};

/// What a call asks of the engine besides its geometry.
struct fold_traits {
  bool pairs = false;      ///< products of pairs of bfloat16; fold_window has none
  bool windows = false;    ///< fold_window may serve the call
  bool products = false;   ///< so does window_products; of a geometry that fold_window serves
  bool columns = false;    ///< weights are read as columns of w
  bool sums = true;        ///< false: only products are wanted
  bool rows_kept = false;  ///< log-weights of a block are kept for rows that are not proven: they are costly to ask for
  bool rows_stored = false;  ///< weights are read where they lie, so that they may be read several times
  bool units = false;        ///< rows' weights are free of the digits of the largest, see row_scale::unit
  bool rows_made = false;    ///< weights are products of factors, which may be formed several times
};

/// What goes around what in the engine's loops. Every order gives the same bits: sums run along the keys in all of
/// them.
enum class loop_order : std::uint8_t {
  weights_first,  ///< a block of weights is packed by all threads, then each one forms the keys of its lane tiles
  keys_first,     ///< all keys are packed once, the weights of a block by the thread that uses them
  k_outer,        ///< by outer blocks of keys, whose memory does not grow with the sequence: k_outer_nest
  window,         ///< panel by panel along the band, with the keys beside it at hand: fold_window
};
constexpr const char* name_of(loop_order order) {
  constexpr const char* names[] = {"weights_first", "keys_first", "k_outer", "window"};
  return names[static_cast<int>(order)];
}

/// Block sizes and buffers of one call; the batch items (head, batch element) of the call share them.
template <class C>
struct fold_plan {
  pair_geometry g;
  row_panels cut;
  int threads = 1;
  bool units = false;          ///< see fold_traits
  bool paired = false;         ///< weights and columns are pairs of bfloat16: two keys a step of the register tile
  bool by_batch_item = false;  ///< many batch items: one a thread. Few: all threads on one
  loop_order order = loop_order::weights_first;
  bool keys_resident = true;  ///< a group's packed columns are kept as a whole, not a window's at a time
  bool products = false;      ///< window_products multiplies the columns with the rows besides
  bool sums = true;           ///< false: what window_products makes is all that is wanted
  bool rows_kept = false;     ///< `rows` are those of all panels of a block, beside their weights
  index_t panels = 0, width = 0, block = 0, group = 1, MC_panels = 1;
  index_t pack_group = 1;   ///< lane tiles that are packed together: those of a group, or a thread's share of all
  index_t sliding = 0;      ///< columns kept
  index_t history = 0;      ///< those among them that lie before a panel's own
  index_t together = 1;     ///< panels whose weights are read at once
  index_t chunk = 0;        ///< outer blocks of keys: panels whose sums are kept
  index_t pass = 0;         ///< outer blocks of keys: lane tiles that are taken through them together
  index_t partials = 0;     ///< products: runs of groups that one thread takes in order; 0: every group by itself
  index_t column_size = 0;  ///< numbers from one lane tile's columns to the next one's
  // Of every thread, or of every team where threads work together.
  per_thread<C> weights, rows, columns, tiles, before, after;
  per_thread<row_scale<C>> scales;
  per_thread<column_scale<C>> column_scales;
  per_thread<lane_tile<C>> group_tiles;  ///< narrow: those of a group and of the next one
  per_thread<source_room<C>> sources;    ///< narrow: of a group

  static constexpr index_t M = tuning<C>::MR;
  static constexpr index_t N = tuning<C>::NR;
  /// Steps of a band edge, at most; with a row's columns as many, a tile has room for two.
  static constexpr index_t edge_steps = M - tuning<C>::edge_group(1);
  static_assert(tuning<C>::edge_group(tuning<C>::edge_groups - 1) <= edge_steps);
  /// Panels that are multiplied together with the columns: one alone is no multiple of a tile's keys.
  static constexpr index_t pair_step = 2;

  /// A line more than the widest row: rows a power of two apart would all lie in one set of the first-level cache.
  index_t ld() const { return round_up(width, 2 * lanes<C>) + 2 * lanes<C>; }
  /// Steps of the register tile that n keys take.
  index_t steps(index_t n) const { return paired ? (n + 1) / 2 : n; }
  /// Whether a thread packs weights for itself alone.
  bool own_weights() const { return by_batch_item || order == loop_order::keys_first || order == loop_order::k_outer; }
  /// Where the weights of a block lie, and their scales, for the slot of buffers that its items name.
  C* weights_of(int slot) const { return weights.of(own_weights() ? slot : 0); }
  row_scale<C>* scales_of(int slot) const { return scales.of(own_weights() ? slot : 0); }

  /// Which ends of rows [r0, r1) may be band edges: every band edge's dense columns begin or end with its rows, nothing
  /// that counts lies beside them or fold_window adds it, and the tiles there are deep enough. The beginning is of rows
  /// r0 and r0 + 1 alone, as a causal row's bits depend on nothing that follows it: an edge moves on by a column a row
  /// until there are no more keys, and so many columns of row r0 keep all band edge from there.
  tile_edges edges(index_t r0, index_t r1) const {
    if (paired || (g.constant && order != loop_order::window) || !(g.bounded || g.causal != 0)) return {};
    const pair_geometry::span first = g.dense(r0, r0 + 1), last = g.dense(r1 - 1, r1);
    constexpr index_t depth = tuning<C>::KC;
    const index_t part_end = (first.lo / depth + 1) * depth, part_begin = (last.hi - 1) / depth * depth;
    tile_edges e;
    e.begin = min_of(first.hi, part_end) - first.lo >= edge_steps && g.dense(r0 + 1, r0 + 2).lo == first.lo + 1;
    e.end = last.hi - max_of(last.lo, part_begin) >= edge_steps &&
            (g.constant && g.causal <= 0 ? r1 - r0 == M : r1 - r0 >= tuning<C>::exact_rows);
    for (index_t i = 1; i < tuning<C>::edge_groups; ++i) {
      const index_t row = r0 + tuning<C>::edge_group(i) < r1 ? r0 + tuning<C>::edge_group(i) : r1;
      e.end = e.end && g.dense(row - 1, row).hi == last.hi - (r1 - row);
    }
    return e;
  }

  /// The first group of a chain of a batch item with so many lane tiles.
  index_t first_group(index_t partial, index_t lane_tiles) const {
    return ceil_div(lane_tiles, group) * partial / partials;
  }

  /// `run` lane tiles lie side by side.
  fold_plan(const pair_geometry& geometry, index_t batch_items, index_t lane_tiles, index_t run, int wanted,
            const fold_traits& traits, scratch& memory)
      : g(geometry),
        cut(geometry, M),
        threads(wanted),
        units(traits.units),
        paired(traits.pairs),
        products(traits.products),
        sums(traits.sums),
        rows_kept(traits.rows_kept) {
    if (paired) g.step = 2;
    if (traits.columns && !g.bounded && g.R >= tuning<C>::many_columns) together = tuning<C>::columns_together;
    panels = cut.count;
    width = cut.widest(g);
    by_batch_item = threads > 1 && batch_items >= 4 * threads;
    if (products) history = M + tuning<C>::band_rows;
    sliding = steps(g.K);
    order = choose_order(traits, lane_tiles);
    if (order == loop_order::k_outer) {
      cut_outer_blocks(lane_tiles, run, traits.rows_stored ? 1 : tuning<C>::outer_made);
      take_outer_blocks(lane_tiles, memory);
      return;
    }
    cut_blocks();
    form_groups(lane_tiles, run);
    // Where one pass over the keys is all, a panel is finished at once: what it reads and writes then comes and goes
    // while the next one is multiplied.
    MC_panels = order == loop_order::window || steps(width) <= tuning<C>::KC ? 1 : min_of(block, tuning<C>::MC_panels);
    MC_panels = min_of(MC_panels, max_of(tuning<C>::MC_bytes / (threads * group * M * N * size), 1));
    take_buffers(lane_tiles, memory);
  }

 private:
  static constexpr index_t size = static_cast<index_t>(sizeof(C));

  index_t panel_bytes() const { return steps(width) * M * size; }
  /// What a panel takes of a block's budget: its weights, or, as the rows that are kept have one like it, those.
  index_t budgeted_bytes() const { return max_of(panel_bytes(), rows_kept ? ld() * M * size : 1); }
  /// What a thread's own weights take at most.
  index_t own_bytes() const { return min_of(tuning<C>::own_weight_bytes, tuning<C>::weight_bytes / threads); }
  int teams() const { return by_batch_item ? threads : 1; }

  /// All that decides between the loop orders; sizes follow from it.
  loop_order choose_order(const fold_traits& traits, index_t lane_tiles) const {
    if (traits.windows && g.bounded && width <= tuning<C>::window_widest) return loop_order::window;
    const index_t keys = steps(g.K), packed = lane_tiles * keys * N * size;
    const index_t many = g.causal != 0 ? tuning<C>::outer_keys_causal : tuning<C>::outer_keys;
    if ((traits.rows_stored || traits.rows_made) && !by_batch_item && !g.bounded && keys >= many &&
        packed >= tuning<C>::outer_from)
      return loop_order::k_outer;
    const bool few_weights =
        panel_bytes() == 0 || panels <= panels_of_block() || own_bytes() / panel_bytes() < together;
    if (!few_weights && !g.constant && packed <= tuning<C>::weight_bytes / teams()) return loop_order::keys_first;
    return loop_order::weights_first;
  }
  /// As many as may be packed at once.
  index_t panels_of_block() const {
    return min_of(max_of(tuning<C>::weight_bytes / teams() / budgeted_bytes(), 1), panels);
  }
  /// Blocks of equal size: a short last one packs all keys for few rows.
  void cut_blocks() { block = panels > 0 ? ceil_div(panels, ceil_div(panels, panels_of_block())) : 0; }

  /// At most `usual` or `wide` lane tiles, by their packed size, and `share`, a thread's part of them. More than the
  /// usual 4 only if they divide a run of tiles that lie side by side in memory: read row by row, a group must not
  /// reach into the next batch element.
  static index_t pick_group(index_t usual, index_t wide, index_t share, index_t run) {
    const index_t few = min_of(min_of(usual, tuning<C>::group), share);
    index_t many = min_of(min_of(wide, tuning<C>::wide_group), min_of(share, run));
    while (many > few && run % many != 0) --many;
    return many > few ? many : max_of(few, 1);
  }
  /// The lane tiles of a group that keeps so many packed keys of each.
  index_t group_of(index_t keys, index_t share, index_t run) const {
    const index_t bytes = keys * N * size + 1, wide = tuning<C>::wide_bytes / bytes;
    const index_t kept = min_of(tuning<C>::window_bytes / bytes, tuning<C>::band_group);
    return pick_group(tuning<C>::key_bytes / bytes, products ? max_of(kept, wide) : wide, share, run);
  }

  /// Sizes of k_outer_nest, `wider` times those of stored weights. Passes are equal, and so are chunks.
  void cut_outer_blocks(index_t lane_tiles, index_t run, index_t wider) {
    const auto even = [](index_t n, index_t limit) {
      const index_t parts = ceil_div(n, max_of(limit, 1));
      return parts > 0 ? ceil_div(n, parts) : 0;
    };
    constexpr index_t depth = tuning<C>::KC;
    width = paired ? 2 * depth : depth;
    column_size = depth * N;
    pass = even(lane_tiles, wider * tuning<C>::outer_bytes / (column_size * size));
    block = max_of(wider * tuning<C>::outer_weights / panel_bytes(), 1);
    const index_t fit = wider * tuning<C>::outer_sums / max_of(pass * M * N * size, 1), step = block * threads;
    // Blocks of one size for all threads, which wait for each other after every outer block of keys.
    chunk = round_up(even(panels, max_of(fit, tuning<C>::outer_panels * threads)), step);
    group = group_of(depth, pass, run);
    // A thread's share, but no group that reaches into the next batch element, where rows cannot be read in place.
    pack_group = min_of(ceil_div(pass, threads), tuning<C>::wide_group);
    while (run % pack_group != 0) --pack_group;
  }
  void take_outer_blocks(index_t lane_tiles, scratch& memory) {
    const auto lay_out = [&](scratch& from) {
      weights = from.take_each<C>(block * steps(width) * M, threads);
      scales = from.take_each<row_scale<C>>(chunk, 1);
      rows = from.take_each<C>(M * ld(), threads);
      columns = from.take_each<C>(pass * column_size, 1);
      column_scales = from.take_each<column_scale<C>>(lane_tiles, 1);
      tiles = from.take_each<C>(chunk * pass * M * N, 1);
    };
    memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  }

  void form_groups(index_t lane_tiles, index_t run) {
    index_t share = by_batch_item ? lane_tiles : ceil_div(lane_tiles, threads);
    if (products) {
      // Sums of products are joined group by group, so groups must not depend on threads: one a chain, if that leaves
      // them the usual size.
      share = max_of(ceil_div(lane_tiles, tuning<C>::partials), min_of(lane_tiles, tuning<C>::group));
    }
    group = pack_group = group_of(sliding, share, run);
    if (order == loop_order::keys_first) {
      // Several blocks a thread, so that all end together.
      const index_t even = by_batch_item ? panels : panels / (4 * threads);
      block = max_of(min_of(own_bytes() / panel_bytes(), even) / together * together, together);
      group = group_of(tuning<C>::KC, lane_tiles, run);
    }
    if (order == loop_order::window) {
      keep_window(share, run);
      if (products) form_partials(lane_tiles);
    } else {
      column_size = sliding * N;
    }
  }

  /// Whether a group's columns are kept as a whole or a window's at a time.
  void keep_window(index_t share, index_t run) {
    const index_t window = width + tuning<C>::window_spare + history;
    const index_t wide = group_of(window, share, run);
    const index_t most_bytes = products ? tuning<C>::window_bytes : tuning<C>::forward_window_bytes;
    const auto bytes = [&](index_t n) { return n * sliding * N * size; };
    index_t kept = min_of(wide, tuning<C>::group);
    while (kept > group && bytes(kept) > most_bytes) kept /= 2;
    group = max_of(kept, group);
    // One tile of several would read rows of k and v a line at a time.
    keys_resident = window >= sliding || (bytes(group) <= most_bytes && (group > 1 || group == wide));
    if (keys_resident) {
      history = 0;
    } else {
      sliding = window;
      group = wide;
    }
    // A line more, else the same column of all tiles would lie in one set of the first-level cache; products read
    // whole blocks of columns.
    column_size = (sliding + (products ? tuning<C>::band_rows + 1 : 1)) * N;
    block = min_of(block, max_of(tuning<C>::weight_bytes / threads / (group * N * size), 1));
  }

  void form_partials(index_t lane_tiles) {
    const index_t groups = ceil_div(lane_tiles, group);
    partials = min_of(groups, lane_tiles >= tuning<C>::many_tiles ? 4 * tuning<C>::partials : tuning<C>::partials);
    block = round_up(block, pair_step);
  }

  void take_buffers(index_t lane_tiles, scratch& memory) {
    const index_t uniform = g.constant ? group * block * N : 0;
    const index_t own_tiles = order == loop_order::keys_first ? lane_tiles : group;
    const int weight_slots = own_weights() ? threads : 1,
              column_slots = order == loop_order::keys_first ? teams() : threads;
    const auto lay_out = [&](scratch& from) {
      weights = from.take_each<C>(block * steps(width) * M, weight_slots);
      scales = from.take_each<row_scale<C>>(block, weight_slots);
      rows = rows_kept ? from.take_each<C>(block * M * ld(), weight_slots)
                       : from.take_each<C>(together * M * ld(), threads);
      columns = from.take_each<C>(own_tiles * column_size, column_slots);
      column_scales = from.take_each<column_scale<C>>(own_tiles, column_slots);
      tiles = from.take_each<C>(group * MC_panels * M * N, threads);
      before = from.take_each<C>(order == loop_order::window && g.constant ? group * N : uniform, threads);
      after = from.take_each<C>(uniform, threads);
      if (order != loop_order::window) return;
      group_tiles = from.take_each<lane_tile<C>>(2 * group, threads);
      sources = from.take_each<source_room<C>>(group, threads);
    };
    memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
