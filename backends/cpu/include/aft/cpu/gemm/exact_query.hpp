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
#include "../softmax/exact_result.hpp"
#include "../softmax/row_state.hpp"
#include "band_edge.hpp"
#include "bias_rows.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// AFT Eq. 2 without the gate, for row t and the lanes of `tile`. O(Tk) per lane, no scratch. `weights` is the
/// batch item of the tile's head (and batch element, where it has one), `g` the geometry the tile engine works by, and
/// `paired` says that it multiplies pairs of bfloat16, `ends` which ends of the row's panel are band edges: then so
/// does this, again for the sake of the same bits.
template <class C>
[[gnu::noinline]] inline void exact_row(const problem& p, const pair_geometry& g, const pair_weights<C>& weights,
                                        const lane_tile<C>& tile, index_t t, bool paired, tile_edges edges,
                                        exact_row_result<C>& out) {
  using k_ = exp_constants<C>;
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;  // 4 KiB of k and v
  constexpr C inf = std::numeric_limits<C>::infinity();
  const index_t group = p.d / p.hk;
  const lane_field<C> keys(p.k, p.grid, tile, group);
  const lane_field<C> values(p.v, p.grid, tile, 1);
  C w[chunk], k[chunk * L], v[chunk * L];
  const vec<C> zero(C(0));
  const vec<C> range(k_::range);
  const auto stage = [&](index_t s0, index_t s1) {
    weights.row(t, s0, s1, w);
    keys.read(s0, s1, k, -inf);
    values.read(s0, s1, v);
    hide_keys(p, tile, s0, s1, k);
  };

  // Pass 1: the largest exponent, the largest logit (for lanes beyond the range), the largest finite |v|.
  vec<C> top(-inf), most_hi(-inf), most_lo(zero), vmax(zero), tainted(zero), beyond(zero);
  for (index_t s0 = 0; s0 < p.Tk; s0 += chunk) {
    const index_t s1 = s0 + chunk < p.Tk ? s0 + chunk : p.Tk;
    stage(s0, s1);
    for (index_t s = 0; s < s1 - s0; ++s) {
      if (w[s] == -inf) continue;
      const vec<C> weight(w[s]);
      const vec<C> key = load(k + s * L);
      const vec<C> value = load(v + s * L);
      const auto seen = differs<C>(key, vec<C>(-inf));
      // A NaN fails every comparison, so "not within" also catches it.
      const auto within = ((xsimd::abs)(key) <= range) && ((xsimd::abs)(weight) <= range);
      beyond = xsimd::select(seen && !within, vec<C>(C(1)), beyond);
      const half_sum<C> z = add_halves<C>(key, weight);
      const auto ordinary = (xsimd::abs)(z.hi) < vec<C>(inf);
      tainted = xsimd::select(seen && !ordinary, vec<C>(C(1)), tainted);
      const auto higher = seen && ordinary && ((z.hi > most_hi) || ((z.hi == most_hi) && (z.lo > most_lo)));
      most_hi = xsimd::select(higher, z.hi, most_hi);
      most_lo = xsimd::select(higher, z.lo, most_lo);
      const vec<C> e = exponent_of<C>(key) + exponent_of<C>(weight);
      top = xsimd::select(seen && within && (e > top), e, top);
      const vec<C> size = (xsimd::abs)(value);
      vmax = xsimd::select(seen && (size < vec<C>(inf)) && (size > vmax), size, vmax);
    }
  }
  // Guard bits keep num below max |v| and den below 1 for any number of keys, so nothing overflows.
  index_t guard = 1;
  while ((index_t{1} << guard) < p.Tk) ++guard;
  const vec<C> guard_bits(static_cast<C>(guard));
  const auto exact_lane = beyond > zero;
  // A power of two that takes max |v| near 1; clamped, since 2^-e must be a normal number both ways.
  C scale[L], inverse_scale[L], largest[L];
  store(largest, vmax);
  for (index_t l = 0; l < L; ++l) value_scale(largest[l], scale[l], inverse_scale[l]);
  const vec<C> value_scaled = load(scale);
  top = xsimd::select(top > vec<C>(-inf), top, zero);
  const vec<C> start_hi = xsimd::select(most_hi > vec<C>(-inf), most_hi, zero);

  // Pass 2: the sums, cut and joined as the tile engine cuts and joins them.
  struct term {
    vec<C> factor = vec<C>(C(0)), mass = factor, weighted = factor;
  };
  const auto term_of = [&](index_t s, [[maybe_unused]] bool as_bf16) {
    const vec<C> weight(w[s]);
    const vec<C> key = load(k + s * L);
    const auto seen = differs<C>(key, vec<C>(-inf));
    const vec<C> value = xsimd::select(seen, load(v + s * L) * value_scaled, zero);
    const split_exp<C> ek = exp_weight_whole<C>(xsimd::select((xsimd::abs)(key) <= range, key, zero));
    const split_exp<C> ew = exp_weight_whole<C>(xsimd::select((xsimd::abs)(weight) <= range, weight, zero));
    term x;
    x.factor = ew.mantissa;
    x.mass = ek.mantissa * pow2<C>(((ek.exponent + ew.exponent) - top) - guard_bits);
    if (xsimd::any(exact_lane)) {
      const half_sum<C> z = add_halves<C>(key, weight);
      const vec<C> logit = vec<C>(C(2)) * ((z.hi - start_hi) + (z.lo - most_lo));
      x.mass = xsimd::select(exact_lane, exp_scaled<C>(logit, guard_bits), x.mass);
      x.factor = xsimd::select(exact_lane, vec<C>(C(1)), x.factor);
    }
    x.mass = xsimd::select(seen, x.mass, zero);
    if constexpr (has_bf16_dot<C>) {
      if (as_bf16) {
        x.mass = round_to_bf16(x.mass);
        x.weighted = round_to_bf16(x.mass * value);
        x.factor = round_to_bf16(x.factor);
        return x;
      }
    }
    x.weighted = x.mass * value;
    return x;
  };
  vec<C> num(zero), den(zero);
  const auto add_to = [&](index_t from, index_t to, vec<C>& block_num, vec<C>& block_den) {
    for (index_t s0 = from; s0 < to; s0 += chunk) {
      const index_t s1 = s0 + chunk < to ? s0 + chunk : to;
      stage(s0, s1);
      if constexpr (has_bf16_dot<C>) {
        if (paired) {
          for (index_t s = 0; s < s1 - s0; s += 2) {
            term first, second;
            if (w[s] != -inf) first = term_of(s, true);
            if (s + 1 < s1 - s0 && w[s + 1] != -inf) second = term_of(s + 1, true);
            const vec<C> factors = join_pairs(first.factor, second.factor);
            block_num = add_pairs(factors, join_pairs(first.weighted, second.weighted), block_num);
            block_den = add_pairs(factors, join_pairs(first.mass, second.mass), block_den);
          }
          continue;
        }
      }
      for (index_t s = 0; s < s1 - s0; ++s) {
        if (w[s] == -inf) continue;
        const term x = term_of(s, false);
        block_num = mul_add(x.factor, x.weighted, block_num);
        block_den = mul_add(x.factor, x.mass, block_den);
      }
    }
  };
  const auto add = [&](index_t from, index_t to, vec<C>& num_sum, vec<C>& den_sum) {
    vec<C> block_num(zero), block_den(zero);
    add_to(from, to, block_num, block_den);
    num_sum = num_sum + block_num;
    den_sum = den_sum + block_den;
  };
  const index_t depth = tuning<C>::KC * (paired ? 2 : 1);
  const row_panels cut(g, tuning<C>::MR);
  const auto span_of = [&](index_t panel) { return cut.dense(g, panel); };
  const index_t own = cut.of(t);
  const auto span = span_of(own);
  const band_edge<C> edge_groups{span, edges, cut.end(own) - cut.begin(own)};
  const index_t edge_group = edge_groups.edge_of(t - cut.begin(own));
  const index_t lo = edge_groups.lo(edge_group), hi = edge_groups.hi(edge_group);
  for (index_t k0 = span.lo / depth * depth; k0 < span.hi; k0 += depth) {
    if (k0 < hi && lo < k0 + depth) add(max_of(lo, k0), hi < k0 + depth ? hi : k0 + depth, num, den);
  }
  vec<C> outer_num(zero), outer_den(zero);
  if (g.constant && g.causal >= 0) {
    vec<C> own_num(zero), own_den(zero);
    add_to(span.lo, lo, own_num, own_den);
    index_t at = 0;
    for (index_t panel = 0; panel <= own; ++panel) {
      const index_t edge = span_of(panel).lo;
      if (edge > at) add(at, edge, outer_num, outer_den);
      at = max_of(edge, at);
    }
    outer_num = own_num + outer_num;
    outer_den = own_den + outer_den;
  }
  if (g.constant && g.causal <= 0) {
    vec<C> own_num(zero), own_den(zero), after_num(zero), after_den(zero);
    for (index_t i = tuning<C>::edge_groups - 1; i > edge_group; --i)
      add_to(edge_groups.hi(i - 1), edge_groups.hi(i), own_num, own_den);
    index_t at = g.K;
    for (index_t panel = cut.count; panel-- > own;) {
      const index_t edge = span_of(panel).hi;
      if (edge < at) add(edge, at, after_num, after_den);
      at = min_of(edge, at);
    }
    outer_num = outer_num + (own_num + after_num);
    outer_den = outer_den + (own_den + after_den);
  }
  num = num + outer_num;
  den = den + outer_den;
  // NaN or +inf among what the row sees must come out as NaN, whatever the comparisons above made of it.
  den = xsimd::select(tainted > zero, vec<C>(std::numeric_limits<C>::quiet_NaN()), den);

  const auto empty = den == zero;
  const vec<C> safe = xsimd::select(empty, vec<C>(C(1)), den);
  // The average lies in the hull of the values; only where rounding carries it past the largest number is it put back
  // there, so that elsewhere the bits remain those of the fast path.
  const vec<C> ratio = num / safe;
  const vec<C> hull = load(largest) * value_scaled;
  vec<C> average = ratio * load(inverse_scale);
  const auto over = ((xsimd::abs)(average) == vec<C>(inf)) && ((xsimd::abs)(ratio) < vec<C>(inf));
  average = xsimd::select(over, xsimd::select(ratio > zero, hull, -hull) * load(inverse_scale), average);
  average = xsimd::select(empty, zero, average);
  const vec<C> exponent = xsimd::select(exact_lane, guard_bits, top + guard_bits);
  const vec<C> base_hi = xsimd::select(exact_lane, start_hi, zero);
  const vec<C> base_lo = xsimd::select(exact_lane, most_lo, zero);
  vec<C> lse = log_from_base<C>({base_hi, base_lo}, safe, exponent);
  lse = xsimd::select(empty, vec<C>(-inf), lse);
  lse = xsimd::select(differs<C>(den, den), den, lse);
  store(out.average, average);
  store(out.num, xsimd::select(over, xsimd::select(ratio > zero, hull, -hull), num));
  store(out.den, xsimd::select(over, vec<C>(C(1)), safe));
  store(out.inverse_scale, load(inverse_scale));
  store(out.lse, lse);
  const split_exp<C> parts = split_denominator<C>(safe);
  const vec<C> inverse = xsimd::select(den == den, vec<C>(C(1)) / parts.mantissa, den);
  store(out.inverse, xsimd::select(empty, zero, inverse));
  store(out.exponent, exponent + parts.exponent);
  store(out.base_hi, base_hi);
  store(out.base_lo, base_lo);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
