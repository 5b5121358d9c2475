// SPDX-License-Identifier: Apache-2.0
/// @file gemm/exact_query.hpp  One row by the definition: the joint maximum of k + w over the keys it sees, then the
/// sums.
///
/// Taken for the lanes whose fast result is not proven (design: the proof check). Weights keep their exponents apart,
/// so as long as no logit lies beyond exp_constants::range the bits are those of the fast path: same mantissas, same
/// order, same joints of partial sums; only the underflow is gone.
#pragma once

#include "../math/exp_weight.hpp"
#include "../math/power_of_two.hpp"
#include "../simd/bf16_dot.hpp"
#include "../softmax/exact_row.hpp"
#include "../softmax/far_lanes.hpp"
#include "../softmax/row_state.hpp"
#include "../tensor/visible_keys.hpp"
#include "bias_rows.hpp"
#include "geometry.hpp"
#include "microkernel.hpp"
#include "pack_keys.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// AFT Eq. 2 without the gate, for row t and the lanes of `tile`. O(Tk) per lane, no scratch. `weights` is the
/// batch item of the tile's head (and batch element, where it has one), `g` the geometry the tile engine works by, and
/// `paired` says that it multiplies pairs of bfloat16, `edges` which ends of the row's panel are band edges: then so
/// does this, again for the sake of the same bits, and so it takes the unit of the row's scale.
template <class C>
[[gnu::noinline]] inline void exact_row(const problem& p, const pair_geometry& g, const pair_weights<C>& weights,
                                        const lane_tile<C>& tile, index_t t, bool paired, tile_edges edges, C unit,
                                        exact_row_result<C>& out) {
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;  // 4 KiB of k and v
  constexpr C inf = std::numeric_limits<C>::infinity();
  const key_reader<C> keys(p, tile);
  C w[chunk], k[chunk * L], v[chunk * L];
  const auto stage = [&](index_t s0, index_t s1) {
    weights.row(t, s0, s1, w);
    keys.read(s0, s1, k, v);
  };

  exact_row_units<C> units;
  for (index_t s0 = 0; s0 < p.Tk; s0 += chunk) {
    const index_t s1 = min_of(s0 + chunk, p.Tk);
    stage(s0, s1);
    for (index_t s = 0; s < s1 - s0; ++s) {
      const vec<C> key = load(k + s * L);
      if (w[s] != -inf) units.see(key, vec<C>(w[s]), load(v + s * L), differs<C>(key, vec<C>(-inf)));
    }
  }
  const far_lanes<C> afar(p, tile);
  afar.show(units);
  // Guard bits keep num below max |v| and den below 1 for any number of keys, so nothing overflows.
  index_t guard = afar.bits();
  while ((index_t{1} << guard) < p.Tk) ++guard;
  units.settle(guard);
  if (!paired) units.divide(first_key<C>(p, tile).unit(), vec<C>(unit));
  const vec<C> per_unit = units.per_weight();

  // The sums, cut and joined as the tile engine cuts and joins them.
  const auto term_of = [&](index_t s, const vec<C>& row, [[maybe_unused]] bool as_bf16) {
    const vec<C> key = load(k + s * L);
    const vec_mask<C> seen = differs<C>(key, vec<C>(-inf));
    exact_term<C> x = units.term(key, vec<C>(w[s]), load(v + s * L), seen, row);
    if constexpr (has_bf16_dot<C>) {
      if (as_bf16) {
        x = {round_to_bf16(x.factor), round_to_bf16(x.mass), x.weighted};
        x.weighted = round_to_bf16(x.mass * units.scaled(load(v + s * L), seen));
      }
    }
    return x;
  };
  const auto sum_of = [&](index_t from, index_t to, vec_sum<C> sum, const vec<C>& row) {
    for (index_t s0 = from; s0 < to; s0 += chunk) {
      const index_t s1 = min_of(s0 + chunk, to);
      stage(s0, s1);
      if constexpr (has_bf16_dot<C>) {
        if (paired) {
          for (index_t s = 0; s < s1 - s0; s += 2) {
            exact_term<C> first, second;
            if (w[s] != -inf) first = term_of(s, row, true);
            if (s + 1 < s1 - s0 && w[s + 1] != -inf) second = term_of(s + 1, row, true);
            const vec<C> factors = join_pairs(first.factor, second.factor);
            sum = {add_pairs(factors, join_pairs(first.weighted, second.weighted), sum.num),
                   add_pairs(factors, join_pairs(first.mass, second.mass), sum.den)};
          }
          continue;
        }
      }
      for (index_t s = 0; s < s1 - s0; ++s) {
        if (w[s] == -inf) continue;
        const exact_term<C> x = term_of(s, row, false);
        sum = {mul_add(x.factor, x.weighted, sum.num), mul_add(x.factor, x.mass, sum.den)};
      }
    }
    return sum;
  };
  const vec_sum<C> none = zero_sum<C>();
  const vec<C> one(C(1));
  const auto outside_of = [&](index_t from, index_t to, vec_sum<C> sum) { return sum_of(from, to, sum, one); };
  const index_t depth = tuning<C>::KC * (paired ? 2 : 1);
  const row_panels cut(g, tuning<C>::MR);
  const index_t own = cut.of(t);
  const auto span = cut.dense(g, own);
  const band_edge<C> edge_groups{span, edges, cut.end(own) - cut.begin(own)};
  const index_t edge_group = edge_groups.edge_of(t - cut.begin(own));
  const index_t lo = edge_groups.lo(edge_group), hi = edge_groups.hi(edge_group);
  vec_sum<C> all = none, outside = afar.sum_in(units);
  for (index_t k0 = span.lo / depth * depth; k0 < span.hi; k0 += depth) {
    // Run by run, counted from where the panel's tile begins.
    const index_t begin = max_of(span.lo, k0), end = min_of(span.hi, k0 + depth);
    const index_t last = end - begin - (edges.end && end == span.hi ? edge_groups.end_steps() : 0);
    vec_sum<C> pass = none;
    for (index_t step = 0, next = 0; step < end - begin; step = next) {
      next = paired ? last : run_end<C>(step, last);
      if (next == last) next = end - begin;
      const index_t from = max_of(lo, begin + step), to = min_of(hi, begin + next);
      if (from < to) pass = pass + sum_of(from, to, none, per_unit);
    }
    all = all + pass;
  }
  if (g.constant && g.causal >= 0) {
    index_t at = 0;
    for (index_t panel = 0; panel <= own; ++panel) {
      const index_t edge = cut.dense(g, panel).lo;
      if (edge > at) outside = outside + outside_of(at, edge, none);
      at = max_of(edge, at);
    }
    outside = outside_of(span.lo, lo, none) + outside;
  }
  if (g.constant && g.causal <= 0) {
    vec_sum<C> beside = none, after = none;
    for (index_t i = tuning<C>::edge_groups - 1; i > edge_group; --i)
      beside = outside_of(edge_groups.hi(i - 1), edge_groups.hi(i), beside);
    index_t at = g.K;
    for (index_t panel = cut.count; panel-- > own;) {
      const index_t edge = cut.dense(g, panel).hi;
      if (edge < at) after = after + outside_of(edge, at, none);
      at = min_of(edge, at);
    }
    outside = outside + (beside + after);
  }
  units.result({mul_add(per_unit, outside.num, all.num), mul_add(per_unit, outside.den, all.den)}, out);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
