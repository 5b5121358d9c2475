// SPDX-License-Identifier: Apache-2.0
/// @file stencil/backward/grouped.hpp  Gradients of AFT-conv with keys grouped to heads, from the caller's lse and
/// average.
///
/// Channels c of a class share exp(k), exp(r) and X = exp(-lse), so sums with o are folded once a class:
///     dv_c = e^k A_c                           A_c = sum_t e^r X g_c
///     dk   = e^k (sum_c v_c A_c - B)           B   = sum_t e^r (X sum_c g_c o_c)
///     dr   = sum_s,t e^r (sum_c X g_c e^k v_c - e^k X sum_c g_c o_c)
/// which is half of the multiply-adds that every channel on its own takes, and dk needs no room for every channel.
/// Sums over a class are kept in its own unit, the largest power of two that g_c times v_c has had.
#pragma once

#include "../../tensor/visible_keys.hpp"
#include "grouped_sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Two batch elements at a time, or the last one alone, of some lane tiles and all classes of theirs.
template <class C>
struct grouped_gradients {
  static constexpr index_t L = lanes<C>;
  const backward_problem& p;
  const stencil_shape& shape;
  const stencil_shape& back;  ///< transposed
  const lane_plan<C>& plan;
  const channel_head_groups<C>& head_groups;
  const stencil_table<C>* tables;             ///< of the lane tiles
  const stencil_table<C>* head_group_tables;  ///< of the segment's class tiles
  grouped_segment segment;
  bool keys_wanted, filter_wanted;
  const grouped_sums<C>& own;

  /// Batch elements b and, if n is 2, b + 1. partial[class][tap] += dr; `next_b` is what the same thread does then.
  void run(index_t b, index_t n, index_t next_b, C* partial) const {
    box_complement<C> rest(back, own.rest);
    own.begin(n);
    for (index_t i = 0; i < segment.head_group_tiles(); ++i)
      for (index_t x = 0; x < n; ++x)
        stage_head_group_keys<C>(p, head_group_tile(b + x, i), head_group_tables[i], false,
                                 own.keys + i * own.step + x * L, own.scales[2 * i + x]);
    const stencil_item here{b, segment.first, segment.last}, next{next_b, segment.first, segment.last};
    const index_t together = tile_group<C>(p.Tq, 12, tuning_stencil<C>::prefetched);
    for (index_t i = segment.first; i < segment.last; ++i)
      channels(b, n, i, stencil_prefetch(here, i, together, next, p.Tq), rest);
    bool open = false;
    for (index_t i = 0; i < segment.head_group_tiles(); ++i) {
      if (filter_wanted) open = taps_epilogue(n, i) || open;
      if (p.dk.set) open = key_epilogue(b, n, i, rest) || open;
    }
    if (open) repair(b, n);
    write(b, n, partial);
    fence_stores();
  }

 private:
  /// What a lane tile's part in its classes depends on.
  struct lane_state {
    lane_tile<C> tile;
    column_scales<C> cs;
    payload_scales<C> ps;
    C share[L];  ///< the lane's unit of g v in that of its class
    gradient_fields<C> fields;
    lane_rows<C> dv;

    lane_state(const backward_problem& p, const lane_tile<C>& of)
        : tile(of), fields(p, tile), dv(p.dv, p.grid, tile, 1) {}
  };

  lane_tile<C> head_group_tile(index_t b, index_t i) const {
    return head_groups.tile(b, segment.head_group_first + i * L, segment.head_group_last);
  }
  lane_spread<C> spread_of(const lane_tile<C>& tile) const {
    return {tile, head_groups.size, segment.head_group_first, own.step};
  }
  void fill_rows(const gradient_fields<C>& fields, index_t x, bool write_dq) const {
    for (index_t t0 = 0; t0 < p.Tq; t0 += query_block<C>::most) {
      const index_t t1 = min_of(t0 + query_block<C>::most, p.Tq);
      read_saved<C>(fields, own.rows[x], t0, t1);
      fill_incoming<C>(fields, *own.block, own.rows[x], t0, t1, write_dq);
    }
  }

  /// What a lane tile of a sharp table loses, to its scales and those of its classes.
  [[gnu::cold, gnu::noinline]] void find_losses(lane_state& s, const stencil_table<C>& table,
                                                const lane_spread<C>& spread, index_t x, const C* by) const {
    const vec<C> share = load(s.share);
    payload_losses<C> losses(table);
    for (index_t l = 0; l < L; ++l) losses.add_keys(s.cs, l, own.keys + x * L + spread.at[l], p.Tk);
    weigh_payload<C>(p, own.rows[x], s.cs, by, s.ps, [&](index_t t, const vec<C>& g, const vec<C>& go) {
      losses.add(own.rows[x], t, g * share, go * share);
    });
    losses.write(s.ps);
    own.join_losses(spread, x, s.tile, table, s.ps);
  }

  /// Lane tile i: dq, dv, and its part in the sums of its classes.
  [[gnu::noinline]] void channels(index_t b, index_t n, index_t i, const stencil_prefetch& ahead,
                                  box_complement<C>& rest) const {
    const stencil_table<C>& table = tables[i];
    lane_state lane[2] = {{p, plan.tile(b, i)}, {p, plan.tile(n == 2 ? b + 1 : b, i)}};
    const head_group_sums<C> at_positions(plan.tile(b, i), head_groups.size, segment.head_group_first, own.step);
    const head_group_sums<C> at_taps(plan.tile(b, i), head_groups.size, segment.head_group_first, own.tap_step);
    const lane_spread<C> spread = spread_of(plan.tile(b, i));
    for (index_t x = 0; x < n; ++x) {
      lane_state& s = lane[x];
      s.fields.v.read(0, p.Tk, own.P + x * L, C(0), 2 * L);
      stage_values<C>(p, spread, own.scales + x, 2, own.keys + x * L, lane_scaling::own, own.P + x * L, 2 * L,
                      own.P + x * L, s.cs);
      fill_rows(s.fields, x, true);
      C by[L];
      measure_payload<C>(p, table, own.rows[x], s.cs, by, s.ps);
      own.join_units(spread, x, s.tile, s.cs, s.ps, s.share);
      const vec<C> share = load(s.share);
      C* const products = own.products + x * L;
      weigh_payload<C>(p, own.rows[x], s.cs, by, s.ps, [&](index_t t, const vec<C>& g, const vec<C>& go) {
        store(own.Q + t * 2 * L + x * L, g);
        at_positions.add(go * share, products + t * 2 * L);
      });
      if (table.any_sharp) find_losses(s, table, spread, x, by);
    }
    const index_t then = ahead.tiles.group;
    const gradient_fields<C> next[2] = {{p, plan.tile(then, ahead.tiles.first)},
                                        {p, plan.tile(then + 1 < p.B ? then + 1 : then, ahead.tiles.first)}};
    if (keys_wanted) {
      fold_grid<C>(back, table.flipped, table.outside, own.Q, rest, own.block->sums, query_block<C>::most,
                   [&](index_t s0, index_t s1) {
                     for (index_t x = 0; x < n; ++x) {
                       values_epilogue(lane[x], table, x, s0, s1, at_positions);
                       next[x].prefetch(ahead.at(s0), ahead.at(s1), ahead.tiles.count());
                     }
                   });
    }
    if (filter_wanted) {
      const vec<C> share[2] = {load(lane[0].share), load(lane[n - 1].share)};
      correlate<C>(shape, own.P, own.Q, own.block->sums, [&](index_t tap, index_t, index_t, index_t, const C* sum) {
        for (index_t x = 0; x < n; ++x) {
          const vec<C> part = load(sum + x * L) * share[x];
          at_taps.add(part, own.taps + tap * 2 * L + x * L);
          at_taps.add((xsimd::abs)(part), own.sizes + tap * 2 * L + x * L);
        }
      });
    }
  }

  /// The block's sums hold A of keys [s0, s1): writes dv and adds v A to the classes.
  [[gnu::flatten]] void values_epilogue(const lane_state& lane, const stencil_table<C>& table, index_t x, index_t s0,
                                        index_t s1, const head_group_sums<C>& at_positions) const {
    constexpr C inf = std::numeric_limits<C>::infinity();
    query_block<C>& block = *own.block;
    C* const k = block.lse;
    C* const v = block.average;
    const lane_tile<C>& tile = lane.tile;
    lane.fields.k.read(s0, s1, k, -inf);
    lane.fields.v.read(s0, s1, v);
    hide_keys(p, tile, s0, s1, k);
    const vec<C> zero(C(0)), one(C(1)), inverse_scale = load(lane.ps.inverse_scale);
    const vec<C> exponents = load(table.exponent) + load(lane.ps.exponent);
    const vec<C> by = load(lane.cs.scale), share = load(lane.share);
    const auto usable = load(lane.ps.usable) == one;
    for (index_t i = 0; i < s1 - s0; ++i) {
      const vec<C> key = load(k + i * L);
      const vec<C> value = load(v + i * L);
      const vec<C> A = load(block.sums + i * 2 * L + x * L);
      const auto hidden = key == vec<C>(-inf);
      const scaled_factor<C> e(key, exponents, exp_constants<C>::range);
      vec<C> dv = e.times(A, inverse_scale, one);
      const vec<C> kept = kept_sum<C>(p.Tq), size = (xsimd::abs)(A);
      auto proven = hidden || (usable && e.keeps(size, kept) && is_finite<C>(dv));
      if (table.any_sharp) proven = proven && (hidden || e.keeps(size, kept, load(lane.ps.lost)));
      dv = xsimd::select(hidden, zero, dv);
      if (!xsimd::all(proven)) {
        C dv_exact[L], dk_exact[L];
        exact_stencil_key<C>(back, table.logs, own.rows[x], s0 + i, key, value, dv_exact, dk_exact);
        dv = xsimd::select(proven, dv, load(dv_exact));
      }
      store(v + i * L, dv);
      if (p.dk.set) at_positions.add(((value * by) * A) * share, own.dk + (s0 + i) * 2 * L + x * L);
    }
    if (p.dv.set) lane.dv.write(p, s0, s1, v);
  }

  /// own.dk = e^k (sum_c v_c A_c - B) of class tile i; true if some have to be repaired.
  [[gnu::flatten]] bool key_epilogue(index_t b, index_t n, index_t i, box_complement<C>& rest) const {
    constexpr C inf = std::numeric_limits<C>::infinity();
    const stencil_table<C>& table = head_group_tables[i];
    query_block<C>& block = *own.block;
    bool any_open = false;
    const vec<C> kept = kept_sum<C>(2 * p.Tq * (p.d / p.hk));  // two sums, over a key's channels too
    fold_grid<C>(back, table.flipped, table.outside, own.products + i * own.step, rest, block.sums,
                 query_block<C>::most, [&](index_t s0, index_t s1) {
                   for (index_t x = 0; x < n; ++x) {
                     const lane_tile<C> tile = head_group_tile(b + x, i);
                     const head_group_state<C>& of = own.states[2 * i + x];
                     C* const k = block.lse;
                     lane_rows<C>(p.k, p.grid, tile, p.d / p.hk).read(s0, s1, k, -inf);
                     hide_keys(p, tile, s0, s1, k);
                     const vec<C> exponents = load(table.exponent) + load(of.payload);
                     const auto usable = load(of.usable) == vec<C>(C(1));
                     for (index_t s = s0; s < s1; ++s) {
                       const index_t at = i * own.step + s * 2 * L + x * L;
                       const vec<C> key = load(k + (s - s0) * L);
                       const auto hidden = key == vec<C>(-inf);
                       const scaled_factor<C> e(key, exponents, exp_constants<C>::range);
                       const vec<C> vA = load(own.dk + at), B = load(block.sums + (s - s0) * 2 * L + x * L);
                       const vec<C> dk = e.times(vA - B, of.low_unit(), of.high_unit());
                       const vec<C> terms = (xsimd::abs)(vA) + (xsimd::abs)(B);
                       auto proven = hidden || (usable && e.keeps(terms, kept) && is_finite<C>(dk));
                       if (table.any_sharp) proven = proven && (hidden || e.keeps(terms, kept, load(of.lost)));
                       any_open = own.settle(own.dk + at, own.open + at, dk, hidden, proven, tile.count) || any_open;
                     }
                   }
                 });
    return any_open;
  }

  /// own.taps = dr of class tile i and each batch element; true if some have to be repaired.
  [[gnu::flatten]] bool taps_epilogue(index_t n, index_t i) const {
    constexpr C inf = std::numeric_limits<C>::infinity();
    const stencil_table<C>& table = head_group_tables[i];
    bool any_open = false;
    const index_t count = head_group_tile(0, i).count;
    const vec<C> enough = kept_sum<C>(2 * p.Tq * (p.d / p.hk));
    correlate<C>(
        shape, own.keys + i * own.step, own.products + i * own.step, own.block->sums,
        [&](index_t tap, index_t, index_t, index_t, const C* sum) {
          const vec<C> r = load(table.logs + tap * L);
          const auto hidden = r == vec<C>(-inf);
          for (index_t x = 0; x < n; ++x) {
            const head_group_state<C>& of = own.states[2 * i + x];
            const index_t at = i * own.tap_step + tap * 2 * L + x * L;
            const scaled_factor<C> e(r, load(own.scales[2 * i + x].exponent) + load(of.payload), stencil_range<C>);
            const vec<C> others = load(sum + x * L);
            const vec<C> terms = load(own.sizes + at) + (xsimd::abs)(others);
            const vec<C> dr = e.times(load(own.taps + at) - others, of.low_unit(), of.high_unit());
            const auto proven = hidden || ((load(of.usable) == vec<C>(C(1))) && e.reaches && is_finite<C>(dr) &&
                                           (of.all_zero() || terms >= enough * load(of.lost)));
            any_open = own.settle(own.taps + at, own.open_taps + at, dr, hidden, proven, count) || any_open;
          }
        });
    return any_open;
  }

  /// Adds what was left open up by definition, channel by channel. dq was written, but is no input.
  [[gnu::cold, gnu::noinline]] void repair(index_t b, index_t n) const {
    for (index_t x = 0; x < n; ++x)
      for (index_t i = segment.first; i < segment.last; ++i) {
        const lane_tile<C> tile = plan.tile(b + x, i);
        const lane_spread<C> spread = spread_of(tile);
        const head_group_sums<C> at_positions(tile, head_groups.size, segment.head_group_first, own.step);
        const head_group_sums<C> at_taps(tile, head_groups.size, segment.head_group_first, own.tap_step);
        bool staged = false;
        const auto stage = [&] {
          if (!staged) fill_rows(gradient_fields<C>(p, tile), x, false);
          staged = true;
        };
        if (p.dk.set) repair_keys(tile, i, x, spread, at_positions, stage);
        if (filter_wanted) repair_taps(tile, i, x, at_taps, stage);
      }
  }

  template <class Stage>
  void repair_keys(const lane_tile<C>& tile, index_t i, index_t x, const lane_spread<C>& spread,
                   const head_group_sums<C>& at_positions, const Stage& stage) const {
    constexpr C inf = std::numeric_limits<C>::infinity();
    const vec<C> zero(C(0));
    for (index_t s = 0; s < p.Tk; ++s) {
      const index_t at = s * 2 * L + x * L;
      const auto closed = spread(own.open + at) == zero;
      if (xsimd::all(closed)) continue;
      stage();
      C k[L], v[L], dv[L], dk[L];
      lane_rows<C>(p.k, p.grid, tile, p.d / p.hk).read(s, s + 1, k, -inf);
      lane_rows<C>(p.v, p.grid, tile, 1).read(s, s + 1, v);
      hide_keys(p, tile, s, s + 1, k);
      exact_stencil_key<C>(back, tables[i].logs, own.rows[x], s, load(k), load(v), dv, dk);
      at_positions.add(xsimd::select(closed, zero, load(dk)), own.dk + at);
    }
  }

  template <class Stage>
  void repair_taps(const lane_tile<C>& tile, index_t i, index_t x, const head_group_sums<C>& at_taps,
                   const Stage& stage) const {
    const vec<C> zero(C(0));
    const lane_spread<C> spread(tile, head_groups.size, segment.head_group_first, own.tap_step);
    index_t tap = 0;
    for (index_t j0 = 0; j0 < shape.taps[0]; ++j0)
      for (index_t j1 = 0; j1 < shape.taps[1]; ++j1)
        for (index_t j2 = 0; j2 < shape.taps[2]; ++j2, ++tap) {
          const index_t at = tap * 2 * L + x * L;
          const auto closed = spread(own.open_taps + at) == zero;
          if (xsimd::all(closed)) continue;
          stage();
          const vec<C> r = load(tables[i].logs + tap * L);
          const vec<C> dr = exact_stencil_tap<C>(p, shape, tile, r, own.rows[x], j0, j1, j2);
          at_taps.add(xsimd::select(closed, zero, dr), own.taps + at);
        }
  }

  [[gnu::noinline]] void write(index_t b, index_t n, C* partial) const {
    const index_t taps = shape.tap_count();
    C* const rows = own.block->average;
    for (index_t i = 0; i < segment.head_group_tiles(); ++i)
      for (index_t x = 0; x < n; ++x) {
        const lane_tile<C> tile = head_group_tile(b + x, i);
        if (p.dk.set) {
          const lane_rows<C> to(p.dk, p.grid, tile, p.d / p.hk);
          for (index_t s0 = 0; s0 < p.Tk; s0 += query_block<C>::most) {
            const index_t s1 = min_of(s0 + query_block<C>::most, p.Tk);
            for (index_t s = s0; s < s1; ++s)
              store(rows + (s - s0) * L, load(own.dk + i * own.step + s * 2 * L + x * L));
            to.write(p, s0, s1, rows);
          }
        }
        if (!filter_wanted) continue;
        for (index_t l = 0; l < tile.count; ++l) {
          C* const sum = partial + (segment.head_group_first + i * L + l) * taps;
          const C* const from = own.taps + i * own.tap_step + x * L + l;
          for (index_t tap = 0; tap < taps; ++tap) sum[tap] += from[tap * 2 * L];
        }
      }
  }
};

}  // namespace aft::inline AFT_ISA::cpu_impl
