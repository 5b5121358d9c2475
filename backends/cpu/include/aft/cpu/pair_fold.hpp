// SPDX-License-Identifier: Apache-2.0
/// @file pair_fold.hpp  The tile engine: panels of weights times packed columns, plus the constant blocks beside them.
///
/// For every panel of rows and every lane tile of columns it forms
///     c[r] = sum_{dense s} A[r][s] P[s] + outside[r] (sum of P before the dense part + sum of P after it)
/// where P has two vectors a position. Forward those are exp(k) v and exp(k); transposed exp(-lse) g and exp(-lse) g o.
/// Dense are a panel's columns, or in fold_window those of each group of its rows, see panel_stairs.hpp. Sums run in
/// the order of s, joined every tuning::depth_block positions: no result depends on threads, on the batch, or on where
/// a block of rows begins.
#pragma once

#include "gemm_tile.hpp"
#include "pair_geometry.hpp"
#include "parallel.hpp"
#include "scratch.hpp"
#include "weight_panel.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// What a lane tile's columns were divided by; filled when they are packed, read when a panel is finished.
template <class C>
struct column_scale {
  C exponent[lanes<C>];
  C base[lanes<C>];
  C unscale[lanes<C>];  ///< the values' power of two
  C floor[lanes<C>];    ///< |num| below floor * den proves nothing; 0 where no value is that small
  C lift[lanes<C>];     ///< transposed fold: the power of two that g o was multiplied by besides
  C unlift[lanes<C>];   ///< its inverse
};

/// What a call asks of the engine besides its geometry.
struct fold_traits {
  bool pairs = false;     ///< products of pairs of bfloat16: without a window, every panel's dense part begins at key 0
  bool windows = false;   ///< fold_window may serve the call
  bool products = false;  ///< so does window_products; of a geometry that fold_window serves
  bool columns = false;   ///< weights are read as columns of w
};

/// Block sizes and buffers of one call; the instances (head, batch element) of the call share them.
template <class C>
struct fold_plan {
  pair_geometry g;
  row_panels cut;
  int threads = 1;
  bool paired = false;         ///< weights and columns are pairs of bfloat16: two keys a step of the register tile
  bool by_instance = false;    ///< many instances: one a thread. Few: all threads on one
  bool columns_first = false;  ///< all columns are packed once, the weights of a block by the thread that uses them
  bool narrow = false;         ///< windows that fold_window serves
  bool held = true;            ///< a group's packed columns are kept as a whole, not a window's at a time
  bool products = false;       ///< window_products multiplies the columns with the rows besides
  index_t panels = 0, width = 0, block = 0, group = 1, strip = 1;
  index_t ring = 0;         ///< columns kept
  index_t behind = 0;       ///< those among them that lie before a panel's own
  index_t together = 1;     ///< panels whose weights are read at once
  index_t chains = 0;       ///< products: runs of groups that one thread takes in order; 0: every group by itself
  index_t column_size = 0;  ///< numbers from one lane tile's columns to the next one's
  C* weights = nullptr;
  row_scale<C>* scales = nullptr;
  C* rows = nullptr;
  C* columns = nullptr;
  column_scale<C>* column_scales = nullptr;
  C* tiles = nullptr;
  C* before = nullptr;
  C* after = nullptr;

  static constexpr index_t M = tuning<C>::rows;
  static constexpr index_t N = tuning<C>::columns;
  /// Steps of a staircase, at most; with a row's columns as many, a tile has room for two.
  static constexpr index_t stair_steps = M - tuning<C>::stair(1);
  static_assert(tuning<C>::stair(tuning<C>::stairs - 1) <= stair_steps);
  /// Panels that are multiplied together with the columns: one alone is no multiple of a tile's keys.
  static constexpr index_t pair_step = 2;

  /// A line more than the widest row: rows a power of two apart would all lie in one set of the first-level cache.
  index_t ld() const { return (width + 2 * lanes<C> - 1) / (2 * lanes<C>)*(2 * lanes<C>)+2 * lanes<C>; }
  /// Steps of the register tile that n keys take.
  index_t steps(index_t n) const { return paired ? (n + 1) / 2 : n; }
  /// Whether a thread packs weights for itself alone.
  bool own_weights() const { return by_instance || columns_first; }

  /// Which ends of rows [r0, r1) may be staircases: every stair's dense columns begin or end with its rows, nothing
  /// that counts lies beside them or fold_window adds it, and the tiles there are deep enough. The beginning is of rows
  /// r0 and r0 + 1 alone, as a causal row's bits depend on nothing that follows it: an edge moves on by a column a row
  /// until there are no more keys, and so many columns of row r0 keep all stairs from there.
  tile_ends ends(index_t r0, index_t r1) const {
    if (paired || (g.constant && !narrow) || !(g.bounded || g.causal != 0)) return {};
    const pair_geometry::span first = g.dense(r0, r0 + 1), last = g.dense(r1 - 1, r1);
    constexpr index_t depth = tuning<C>::depth_block;
    const index_t part_end = (first.lo / depth + 1) * depth, part_begin = (last.hi - 1) / depth * depth;
    tile_ends e;
    e.begin = (first.hi < part_end ? first.hi : part_end) - first.lo >= stair_steps &&
              g.dense(r0 + 1, r0 + 2).lo == first.lo + 1;
    e.end = last.hi - (last.lo > part_begin ? last.lo : part_begin) >= stair_steps &&
            (g.constant && g.causal <= 0 ? r1 - r0 == M : r1 - r0 >= M / 2);
    for (index_t i = 1; i < tuning<C>::stairs; ++i) {
      const index_t row = r0 + tuning<C>::stair(i) < r1 ? r0 + tuning<C>::stair(i) : r1;
      e.end = e.end && g.dense(row - 1, row).hi == last.hi - (r1 - row);
    }
    return e;
  }

  static index_t least(index_t a, index_t b) { return a < b ? a : b; }

  /// Lane tiles of a group: at most `usual` or `wide` many, by their packed size, and `share`, a thread's part of them.
  /// More than the usual 4 only if they divide a run of tiles that lie side by side in memory: read row by row, a
  /// group must not reach into the next batch element.
  static index_t pick_group(index_t usual, index_t wide, index_t share, index_t run) {
    const index_t few = least(least(usual, tuning<C>::group), share);
    index_t many = least(least(wide, tuning<C>::wide_group), least(share, run));
    while (many > few && run % many != 0) --many;
    return many > few ? many : (few < 1 ? 1 : few);
  }

  /// The first group of a chain of an instance with so many lane tiles.
  index_t first_group(index_t chain, index_t lane_tiles) const {
    return (lane_tiles + group - 1) / group * chain / chains;
  }

  /// `run` lane tiles lie side by side.
  fold_plan(const pair_geometry& geometry, index_t instances, index_t lane_tiles, index_t run, int wanted,
            const fold_traits& traits, scratch& memory)
      : g(geometry), cut(geometry, M), threads(wanted), paired(traits.pairs), products(traits.products) {
    if (traits.columns && !g.bounded && g.R >= tuning<C>::many_columns) together = tuning<C>::columns_together;
    panels = cut.count;
    width = cut.widest(g);
    narrow = traits.windows && g.bounded && width <= tuning<C>::window_widest;
    by_instance = threads > 1 && instances >= 4 * threads;
    const index_t teams = by_instance ? threads : 1;
    const index_t panel_bytes = steps(width) * M * static_cast<index_t>(sizeof(C));
    block = tuning<C>::weight_bytes / teams / (panel_bytes > 0 ? panel_bytes : 1);
    block = block < 1 ? 1 : (block > panels ? panels : block);
    // Blocks of equal size: a short last one packs all keys for few rows.
    const index_t blocks = panels > 0 ? (panels + block - 1) / block : 1;
    block = (panels + blocks - 1) / blocks;
    const index_t all_columns = lane_tiles * steps(g.K) * N * static_cast<index_t>(sizeof(C));
    columns_first = blocks > 1 && !narrow && !g.constant && all_columns <= tuning<C>::weight_bytes / teams &&
                    together * panel_bytes <= tuning<C>::weight_bytes / threads;
    index_t share = by_instance ? lane_tiles : (lane_tiles + threads - 1) / threads;
    if (columns_first) {
      const index_t bytes = least(tuning<C>::own_weight_bytes, tuning<C>::weight_bytes / threads);
      // Several blocks a thread, so that all end together.
      block = least(bytes / panel_bytes, panels / (4 * threads)) / together * together;
      block = block < together ? together : block;
      share = lane_tiles;
    }
    if (products) {
      // Sums of products are joined group by group, so groups must not depend on threads: one a chain, if that leaves
      // them the usual size.
      const index_t few = lane_tiles < tuning<C>::group ? lane_tiles : tuning<C>::group;
      share = (lane_tiles + tuning<C>::chains - 1) / tuning<C>::chains;
      share = share > few ? share : few;
      behind = M + tuning<C>::band_rows;
    }
    const auto lanes_of = [&](index_t keys) {
      const index_t bytes = keys * N * static_cast<index_t>(sizeof(C)) + 1;
      const index_t wide = tuning<C>::wide_bytes / bytes,
                    kept = least(tuning<C>::window_bytes / bytes, tuning<C>::band_group);
      return pick_group(tuning<C>::key_bytes / bytes, products && kept > wide ? kept : wide, share, run);
    };
    ring = steps(g.K);
    group = lanes_of(columns_first ? tuning<C>::depth_block : ring);
    if (narrow) {
      const index_t window = width + tuning<C>::window_spare + behind;
      const index_t wide = lanes_of(window);
      const auto bytes = [&](index_t n) { return n * ring * N * static_cast<index_t>(sizeof(C)); };
      const index_t most_bytes = products ? tuning<C>::window_bytes : tuning<C>::forward_window_bytes;
      index_t kept = wide < tuning<C>::group ? wide : tuning<C>::group;
      while (kept > group && bytes(kept) > most_bytes) kept /= 2;
      group = kept > group ? kept : group;
      // One tile of several would read rows of k and v a line at a time.
      held = window >= ring || (bytes(group) <= most_bytes && (group > 1 || group == wide));
      if (!held) {
        ring = window;
        group = wide;
      } else {
        behind = 0;
      }
      // A line more, else the same column of all tiles would lie in one set of the first-level cache; products read
      // whole strips of columns.
      column_size = (ring + (products ? tuning<C>::band_rows + 1 : 1)) * N;
      const index_t most = tuning<C>::weight_bytes / threads / (group * N * static_cast<index_t>(sizeof(C)));
      block = block > most ? (most < 1 ? 1 : most) : block;
      if (products) {
        const index_t groups = (lane_tiles + group - 1) / group;
        const index_t many = lane_tiles >= tuning<C>::many_tiles ? 4 * tuning<C>::chains : tuning<C>::chains;
        chains = groups < many ? groups : many;
        block = (block + pair_step - 1) / pair_step * pair_step;
      }
    } else {
      column_size = ring * N;
    }
    // Where one pass over the keys is all, a panel is finished at once: what it reads and writes then comes and goes
    // while the next one is multiplied.
    strip =
        narrow || steps(width) <= tuning<C>::depth_block ? 1 : (block < tuning<C>::strip ? block : tuning<C>::strip);
    const index_t outside = g.constant ? threads * group * block * N : 0;
    const index_t heads = narrow && g.constant ? threads * group * N : outside;
    const index_t weight_slots = own_weights() ? threads : 1;
    const index_t column_slots = columns_first ? teams * lane_tiles : threads * group;
    const index_t weight_count = weight_slots * block * steps(width) * M, row_count = threads * together * M * ld();
    const index_t column_count = column_slots * column_size, tile_count = threads * group * strip * M * N;
    const index_t scale_count = weight_slots * block, column_scale_count = column_slots;
    constexpr index_t size = static_cast<index_t>(sizeof(C));
    constexpr index_t rounding = 8 * 64 / size;
    memory.reserve<C>(weight_count + row_count + column_count + tile_count + heads + outside + rounding +
                      scale_count * static_cast<index_t>(sizeof(row_scale<C>)) / size +
                      column_scale_count * static_cast<index_t>(sizeof(column_scale<C>)) / size);
    weights = memory.take<C>(weight_count);
    scales = memory.take<row_scale<C>>(scale_count);
    rows = memory.take<C>(row_count);
    columns = memory.take<C>(column_count);
    column_scales = memory.take<column_scale<C>>(column_scale_count);
    tiles = memory.take<C>(tile_count);
    before = memory.take<C>(heads);
    after = memory.take<C>(outside);
  }
};

/// Sums of P before and after each panel's dense part. Both are sums of their own, forwards and backwards: taking the
/// one from the total would cancel.
template <class C>
inline void fold_outside(const fold_plan<C>& plan, index_t p0, index_t p1, const C* P, C* before, C* after) {
  constexpr index_t N = tuning<C>::columns;
  constexpr index_t L = lanes<C>;
  const pair_geometry& g = plan.g;
  const auto span_of = [&](index_t panel) { return plan.cut.dense(g, panel); };
  // A stretch between two panels' edges is summed apart before it joins the rest, which keeps the rounding of long
  // sequences that of their square root. The stretches begin at 0 and at K, so they do not depend on p0 and p1.
  const auto stretch = [&](index_t from, index_t to, vec<C>& a, vec<C>& b) {
    vec<C> x(C(0)), y(C(0));
    for (index_t s = from; s < to; ++s) {
      x = x + load(P + s * N);
      y = y + load(P + s * N + L);
    }
    a = a + x;
    b = b + y;
  };
  vec<C> num(C(0)), den(C(0));
  index_t at = 0;
  if (g.causal >= 0) {
    for (index_t panel = 0; panel < p1; ++panel) {
      const index_t lo = span_of(panel).lo;
      if (lo > at) stretch(at, lo, num, den);
      at = lo > at ? lo : at;
      if (panel >= p0) {
        store(before + (panel - p0) * N, num);
        store(before + (panel - p0) * N + L, den);
      }
    }
  }
  if (g.causal <= 0) {
    num = vec<C>(C(0));
    den = vec<C>(C(0));
    at = g.K;
    for (index_t panel = plan.panels; panel-- > p0;) {
      const index_t hi = span_of(panel).hi;
      if (hi < at) stretch(hi, at, num, den);
      at = hi < at ? hi : at;
      if (panel < p1) {
        store(after + (panel - p0) * N, num);
        store(after + (panel - p0) * N + L, den);
      }
    }
  }
}

/// Sums of P outside the dense columns of each stair of a panel's rows.
template <class C>
class outside_sums {
 public:
  void set(index_t stair, const vec<C>& num, const vec<C>& den) {
    store(sums_ + stair * tuning<C>::columns, num);
    store(sums_ + stair * tuning<C>::columns + lanes<C>, den);
  }
  /// take(r, num, den) for each of the rows.
  template <class Take>
  [[gnu::always_inline]] void for_rows(index_t rows, const Take& take) const {
    for (index_t stair = 0, r = 0; r < rows; ++stair) {
      const vec<C> num = load(sums_ + stair * tuning<C>::columns);
      const vec<C> den = load(sums_ + stair * tuning<C>::columns + lanes<C>);
      const index_t next = tuning<C>::stair(stair + 1);
      for (const index_t end = next < rows ? next : rows; r < end; ++r) take(r, num, den);
    }
  }

 private:
  C sums_[tuning<C>::stairs * tuning<C>::columns] = {};
};

/// tile[r] += outside[r] sums, two vectors a row. Outside weights are at most 1.42, so sums that are 0 add nothing.
template <class C>
inline void add_outside(index_t rows, const row_scale<C>& rs, const outside_sums<C>& sums, C* tile) {
  sums.for_rows(rows, [&](index_t r, const vec<C>& num, const vec<C>& den) {
    C* const to = tile + r * tuning<C>::columns;
    const vec<C> outside(rs.outside[r]);
    store(to, mul_add(outside, num, load(to)));
    store(to + lanes<C>, mul_add(outside, den, load(to + lanes<C>)));
  });
}

/// fill(r0, r1, s0, s1, out, ld) gives the log-weights of a panel.
template <class C>
using fill_ref = function_ref<void(index_t, index_t, index_t, index_t, C*, index_t)>;

/// The weights of panels [p0, p1).
template <class C>
[[gnu::noinline]] inline void pack_weights(const fold_plan<C>& plan, int thread, index_t p0, index_t p1,
                                           fill_ref<C> fill) {
  constexpr index_t M = tuning<C>::rows;
  const pair_geometry& g = plan.g;
  const index_t panel_size = plan.steps(plan.width) * M;
  const index_t team = plan.own_weights() ? thread : 0;
  const index_t items = (p1 - p0 + plan.together - 1) / plan.together;
  parallel_for(items, plan.own_weights() ? 1 : plan.threads, [&](index_t item, int own) {
    const index_t first = p0 + item * plan.together;
    const index_t last = first + plan.together < p1 ? first + plan.together : p1;
    const index_t origin = plan.cut.begin(first), ld = plan.ld();
    const auto all = g.dense(origin, plan.cut.end(last - 1));
    C* const rows = plan.rows + (plan.own_weights() ? thread : own) * plan.together * M * ld;
    fill(origin, plan.cut.end(last - 1), all.lo, all.hi, rows, ld);
    for (index_t panel = first; panel < last; ++panel) {
      const index_t r0 = plan.cut.begin(panel), r1 = plan.cut.end(panel);
      const auto span = g.dense(r0, r1);
      const index_t at = team * plan.block + panel - p0;
      const tile_ends ends = plan.ends(r0, r1);
      const bool beside =
          g.constant && ((ends.begin && g.causal >= 0) || (ends.end && g.causal <= 0));  // else it is hidden
      const bool outside = g.has_prefix(span) || g.has_suffix(span) || beside;
      pack_weight_panel<C>(r1 - r0, span.hi - span.lo, rows + (r0 - origin) * ld + span.lo - all.lo, ld, outside,
                           plan.paired, plan.weights + at * panel_size, plan.scales[at]);
      plan.scales[at].ends = ends;
    }
  });
}

/// A group of lane tiles and the panels that a thread takes them through.
struct fold_item {
  int slot;  ///< of the plan's buffers
  index_t tile, count, first, last;
  index_t block;        ///< the first panel whose weights are packed
  index_t chain = 0;    ///< that the group belongs to
  bool begins = false;  ///< it is the chain's first
};

/// Hands out panels [p0, p1) of all lane tiles: lane tiles first; rows are divided too when there are fewer groups, or
/// chains of groups, than threads.
template <class C, class Body>
inline void for_each_item(const fold_plan<C>& plan, int thread, index_t tiles, index_t p0, index_t p1,
                          const Body& body) {
  const int team = plan.by_instance ? 1 : plan.threads;
  const index_t groups = (tiles + plan.group - 1) / plan.group;
  const index_t units = plan.chains > 0 ? plan.chains : groups;
  const index_t step = plan.products ? plan.pair_step : 1;
  index_t parts = units > 0 && units < team ? (team + units - 1) / units : 1;
  parts = parts > p1 - p0 ? p1 - p0 : parts;
  const auto first_of = [&](index_t unit) { return plan.chains > 0 ? plan.first_group(unit, tiles) : unit; };
  const auto edge = [&](index_t part) { return part < parts ? p0 + (p1 - p0) * part / parts / step * step : p1; };
  parallel_for(units * parts, team, [&](index_t i, int own) {
    const index_t unit = i / parts;
    const index_t part = i % parts;
    for (index_t group = first_of(unit); group < first_of(unit + 1) && edge(part) < edge(part + 1); ++group) {
      const index_t left = tiles - group * plan.group;
      body(fold_item{plan.by_instance ? thread : own, group * plan.group, left < plan.group ? left : plan.group,
                     edge(part), edge(part + 1), p0, unit, group == first_of(unit)});
    }
    fence_stores();  // of what was written around the caches
  });
}

/// Multiplies the panels of an item with its packed columns P, and finishes them. Where they come first,
/// they are farther away than the second-level cache; `next` are those that the thread takes afterwards.
template <class C, class Finish>
[[gnu::noinline]] inline void fold_panels(const fold_plan<C>& plan, const fold_item& item, const C* P, const C* next,
                                          const column_scale<C>* cs, const Finish& finish) {
  constexpr index_t N = tuning<C>::columns;
  constexpr index_t M = tuning<C>::rows;
  const pair_geometry& g = plan.g;
  const row_panels& cut = plan.cut;
  const index_t depth = tuning<C>::depth_block * (plan.paired ? 2 : 1);
  const index_t panel_size = plan.steps(plan.width) * M;
  const index_t column_size = plan.column_size;
  const int slot = item.slot;
  const index_t tile0 = item.tile, in_group = item.count, a0 = item.first, a1 = item.last, p0 = item.block;
  const index_t weight_slot = plan.own_weights() ? slot : 0;
  const C* const weights = plan.weights + weight_slot * plan.block * panel_size;
  const row_scale<C>* const scales = plan.scales + weight_slot * plan.block;
  C* const c = plan.tiles + slot * plan.group * plan.strip * M * N;
  C* const before = g.constant ? plan.before + slot * plan.group * plan.block * N : nullptr;
  C* const after = g.constant ? plan.after + slot * plan.group * plan.block * N : nullptr;
  for (index_t i = 0; g.constant && i < in_group; ++i) {
    fold_outside<C>(plan, a0, a1, P + i * g.K * N, before + i * plan.block * N, after + i * plan.block * N);
  }
  for (index_t s0 = a0; s0 < a1; s0 += plan.strip) {
    const index_t s1 = s0 + plan.strip < a1 ? s0 + plan.strip : a1;
    const auto first = cut.dense(g, s0);
    const auto last = cut.dense(g, s1 - 1);
    const index_t start = first.lo / depth * depth;
    for (index_t k0 = start; k0 < last.hi; k0 += depth) {
      const bool more = k0 + depth < last.hi;
      const C* const coming = (more ? P : next) + plan.steps(more ? k0 + depth : start) * N;
      for (index_t panel = s0; panel < s1; ++panel) {
        const auto span = cut.dense(g, panel);
        const index_t from = span.lo > k0 ? span.lo : k0;
        const index_t to = span.hi < k0 + depth ? span.hi : k0 + depth;
        if (from >= to) continue;
        const C* const a = weights + (panel - p0) * panel_size + plan.steps(from - span.lo) * M;
        const C* const following = panel + 1 < s1 ? a + panel_size : a;
        const index_t r0 = cut.begin(panel), r1 = cut.end(panel);
        const tile_ends whole = scales[panel - p0].ends;
        const tile_ends ends{whole.begin && from == span.lo, whole.end && to == span.hi};
        for (index_t i = 0; i < in_group; ++i) {
          const C* const columns = P + i * column_size + plan.steps(from) * N;
          C* const tile = c + ((panel - s0) * plan.group + i) * M * N;
          auto ask = asked_lines<C>::of_weights(i == 0 ? following : a);
          if (plan.columns_first && i > 0) {
            // A part of the columns for each tile that need not ask for weights.
            constexpr index_t line = asked_lines<C>::line, parts = N > line ? N / line : 1;
            const index_t part = (panel - s0) * (in_group - 1) + i - 1, of = part / parts;
            if (of < in_group)
              ask = asked_lines<C>::from(coming + of * column_size + part % parts * plan.steps(depth) * line);
          }
          if constexpr (has_bf16_dot<C>) {
            if (plan.paired) {
              gemm_panel<C, true>(r1 - r0, plan.steps(to - from), a, columns, tile, from > span.lo, ask);
              continue;
            }
          }
          gemm_panel<C, false>(r1 - r0, to - from, a, columns, tile, from > span.lo, ask, ends);
        }
      }
    }
    for (index_t panel = s0; panel < s1; ++panel) {
      const index_t r0 = cut.begin(panel);
      const index_t r1 = cut.end(panel);
      const auto span = g.dense(r0, r1);
      const row_scale<C>& rs = scales[panel - p0];
      for (index_t i = 0; i < in_group; ++i) {
        C* const tile = c + ((panel - s0) * plan.group + i) * M * N;
        if (span.lo == span.hi)
          for (index_t x = 0; x < (r1 - r0) * N; ++x) tile[x] = C(0);
        if (g.has_prefix(span) || g.has_suffix(span)) {
          const index_t at = (i * plan.block + panel - a0) * N;
          outside_sums<C> sums;
          vec<C> num(C(0)), den(C(0));
          if (g.has_prefix(span)) num = load(before + at), den = load(before + at + lanes<C>);
          if (g.has_suffix(span)) num = num + load(after + at), den = den + load(after + at + lanes<C>);
          for (index_t stair = 0; stair < tuning<C>::stairs; ++stair) sums.set(stair, num, den);
          add_outside<C>(r1 - r0, rs, sums, tile);
        }
        finish(tile0 + i, cs[i], r0, r1, rs, tile);
      }
    }
  }
}

/// Runs one instance. fill(r0, r1, s0, s1, out, ld) gives log-weights; pack(slot, tile, n, P, scales) packs the
/// columns of n lane tiles with the buffers of a slot; finish(tile, scale, r0, r1, rows, c) takes the sums of a panel.
/// `thread` is the caller's slot of the plan's buffers when the plan runs by instance, else 0.
template <class C, class Fill, class Pack, class Finish>
inline void fold_pairs(const fold_plan<C>& plan, int thread, index_t tiles, const Fill& fill, const Pack& pack,
                       const Finish& finish) {
  if (plan.columns_first) {
    const int team = plan.by_instance ? 1 : plan.threads;
    const index_t groups = (tiles + plan.group - 1) / plan.group, blocks = (plan.panels + plan.block - 1) / plan.block;
    const index_t first = plan.by_instance ? thread * tiles : 0;
    C* const P = plan.columns + first * plan.column_size;
    column_scale<C>* const cs = plan.column_scales + first;
    const auto item_at = [&](index_t group, index_t block, int own) {
      const index_t tile = group * plan.group, p0 = block * plan.block;
      return fold_item{.slot = plan.by_instance ? thread : own,
                       .tile = tile,
                       .count = tile + plan.group < tiles ? plan.group : tiles - tile,
                       .first = p0,
                       .last = p0 + plan.block < plan.panels ? p0 + plan.block : plan.panels,
                       .block = p0};
    };
    parallel_for(groups, team, [&](index_t group, int own) {
      const fold_item item = item_at(group, 0, own);
      pack(item.slot, item.tile, item.count, P + item.tile * plan.column_size, cs + item.tile);
    });
    parallel_for(blocks, team, [&](index_t i, int own) {
      // The longest rows come first, so that threads end together.
      const index_t block = plan.g.causal > 0 ? blocks - 1 - i : i;
      for (index_t group = 0; group < groups; ++group) {
        const fold_item item = item_at(group, block, own);
        if (group == 0) pack_weights<C>(plan, item.slot, item.first, item.last, fill_ref<C>(fill));
        const index_t following = group + 1 < groups ? item.tile + item.count : 0;
        fold_panels<C>(plan, item, P + item.tile * plan.column_size, P + following * plan.column_size, cs + item.tile,
                       finish);
      }
      fence_stores();
    });
    return;
  }
  for (index_t p0 = 0; p0 < plan.panels; p0 += plan.block) {
    const index_t p1 = p0 + plan.block < plan.panels ? p0 + plan.block : plan.panels;
    pack_weights<C>(plan, thread, p0, p1, fill_ref<C>(fill));
    for_each_item<C>(plan, thread, tiles, p0, p1, [&](const fold_item& item) {
      C* const P = plan.columns + item.slot * plan.group * plan.column_size;
      column_scale<C>* const cs = plan.column_scales + item.slot * plan.group;
      pack(item.slot, item.tile, item.count, P, cs);
      fold_panels<C>(plan, item, P, P, cs, finish);
    });
  }
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
