// SPDX-License-Identifier: Apache-2.0
/// @file stencil/exact.hpp  One row of a convolution by the definition: the joint maximum over the keys it sees.
///
/// Taken for the lanes whose fast result is not proven. Weights keep their exponents apart and are added in the order
/// of the fast causal fold (taps, then the sum before them by groups), so within exp_constants::range a causal row has
/// the same bits on either path, and a future key that sends it here changes nothing.
#pragma once

#include "../math/half_sum.hpp"
#include "../softmax/exact_result.hpp"
#include "complement.hpp"
#include "pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Calls f(i0, i1, tap) for runs of consecutive inputs that output t may read: first those under the box, in the
/// order of taps, where `tap` belongs to i0; then the rest, with tap = -1.
template <class F>
inline void for_each_run(const stencil_shape& s, index_t t, const F& f) {
  const index_t width = s.width();
  const index_t x2 = t % width;
  const index_t x1 = t / width % s.grid[1];
  const index_t x0 = t / width / s.grid[1];
  const auto planes = s.reach(0, x0);
  const auto rows = s.reach(1, x1);
  const auto box = s.reach(2, x2);
  const auto line = [&](index_t y0, index_t y1) { return (y0 * s.grid[1] + y1) * width; };
  if (box.lo < box.hi) {
    for (index_t y0 = planes.lo; y0 < planes.hi; ++y0)
      for (index_t y1 = rows.lo; y1 < rows.hi; ++y1) {
        const index_t j0 = y0 - x0 + s.left[0];
        const index_t j1 = y1 - x1 + s.left[1];
        const index_t tap = (j0 * s.taps[1] + j1) * s.taps[2] + box.lo - x2 + s.left[2];
        f(line(y0, y1) + box.lo, line(y0, y1) + box.hi, tap);
      }
  }
  if (!s.complement()) return;
  for (index_t y0 = 0; y0 < s.grid[0]; ++y0)
    for (index_t y1 = 0; y1 < s.grid[1]; ++y1) {
      const bool crosses = planes.lo <= y0 && y0 < planes.hi && rows.lo <= y1 && y1 < rows.hi;
      const index_t from = line(y0, y1);
      if (!crosses) {
        f(from, from + width, index_t{-1});
      } else {
        if (s.before && box.lo > 0) f(from, from + box.lo, index_t{-1});
        if (s.after && box.hi < width) f(from + box.hi, from + width, index_t{-1});
      }
    }
}

/// AFT Eq. 6 without the gate for output t and all lanes of the tile. `logs` is the tile's filter, [tap][lane]. O(Tk).
template <class C>
inline void exact_stencil_row(const problem& p, const stencil_shape& shape, const lane_tile<C>& tile, const C* logs,
                              index_t t, exact_row_result<C>& out) {
  using k_ = exp_constants<C>;
  constexpr index_t L = lanes<C>;
  constexpr index_t chunk = 32;
  constexpr C inf = std::numeric_limits<C>::infinity();
  const lane_field<C> keys(p.k, p.grid, tile, p.d / p.hk);
  const lane_field<C> values(p.v, p.grid, tile, 1);
  C k[chunk * L], v[chunk * L];
  const vec<C> zero(C(0)), one(C(1)), two(C(2)), range(k_::range);
  // f(key, w, v, seen) for every key, in order.
  const auto visit = [&](const auto& f) {
    for_each_run(shape, t, [&](index_t i0, index_t i1, index_t tap) {
      for (index_t s0 = i0; s0 < i1; s0 += chunk) {
        const index_t s1 = s0 + chunk < i1 ? s0 + chunk : i1;
        keys.read(s0, s1, k, -inf);
        values.read(s0, s1, v);
        hide_keys(p, tile, s0, s1, k);
        for (index_t s = 0; s < s1 - s0; ++s) {
          const vec<C> key = load(k + s * L);
          const vec<C> weight = tap < 0 ? zero : load(logs + (tap + s0 - i0 + s) * L);
          f(key, weight, load(v + s * L), !(key == vec<C>(-inf)) && !(weight == vec<C>(-inf)), tap >= 0);
        }
      }
    });
  };

  vec<C> top(-inf), most_hi(-inf), most_lo(zero), largest(zero), tainted(zero), beyond(zero);
  visit([&](const vec<C>& key, const vec<C>& weight, const vec<C>& value, const vec_mask<C>& seen, bool) {
    // A NaN fails every comparison, so "not within" catches it too.
    const auto within = ((xsimd::abs)(key) <= range) && ((xsimd::abs)(weight) <= range);
    beyond = xsimd::select(seen && !within, one, beyond);
    const half_sum<C> z = add_halves<C>(key, weight);
    const auto ordinary = (xsimd::abs)(z.hi) < vec<C>(inf);
    tainted = xsimd::select(seen && !ordinary, one, tainted);
    const auto higher = seen && ordinary && ((z.hi > most_hi) || ((z.hi == most_hi) && (z.lo > most_lo)));
    most_hi = xsimd::select(higher, z.hi, most_hi);
    most_lo = xsimd::select(higher, z.lo, most_lo);
    const vec<C> e = exponent_of<C>(key) + exponent_of<C>(weight);
    top = xsimd::select(seen && within && (e > top), e, top);
    const vec<C> size = (xsimd::abs)(value);
    largest = xsimd::select(seen && (size < vec<C>(inf)) && (size > largest), size, largest);
  });
  C max_abs[L], scales[L], inverse_scales[L];
  store(max_abs, largest);
  for (index_t l = 0; l < L; ++l) value_scale(max_abs[l], scales[l], inverse_scales[l]);
  const vec<C> by = load(scales);
  const auto distant = beyond > zero;
  top = xsimd::select(top > vec<C>(-inf), top, zero);
  const vec<C> start = xsimd::select(most_hi > vec<C>(-inf), most_hi, zero);

  vec<C> box_num(zero), box_den(zero);
  row_sum<C> rest = row_sum<C>::zero();
  index_t outside = 0;
  visit([&](const vec<C>& key, const vec<C>& weight, const vec<C>& value, const vec_mask<C>& seen, bool in_box) {
    const split_exp<C> ek = exp_weight_whole<C>(xsimd::select((xsimd::abs)(key) <= range, key, zero));
    const split_exp<C> ew = exp_weight_whole<C>(xsimd::select((xsimd::abs)(weight) <= range, weight, zero));
    vec<C> factor = ew.mantissa;
    vec<C> mass = ek.mantissa * pow2<C>((ek.exponent + ew.exponent) - top);
    if (xsimd::any(distant)) {
      const half_sum<C> z = add_halves<C>(key, weight);
      const vec<C> x = two * ((z.hi - start) + (z.lo - most_lo));
      mass = xsimd::select(distant, exp_scaled<C>(x, zero), mass);
      factor = xsimd::select(distant, one, factor);
    }
    mass = xsimd::select(seen, mass, zero);
    const vec<C> moment = xsimd::select(seen, mass * (value * by), zero);
    if (in_box) {
      // A hidden tap may be NaN-free but infinite; its factor must not meet the zero mass.
      factor = xsimd::select(seen, factor, zero);
      box_num = mul_add(factor, moment, box_num);
      box_den = mul_add(factor, mass, box_den);
    } else {
      rest.add({moment, mass});
      if (++outside % (index_t{1} << row_sum<C>::group) == 0) rest.join();
    }
  });
  const vec<C> num = box_num + rest.total().a;
  vec<C> den = box_den + rest.total().b;
  // NaN or +inf among what the row sees must come out as NaN, whatever the comparisons above made of it.
  den = xsimd::select(tainted > zero, vec<C>(std::numeric_limits<C>::quiet_NaN()), den);

  const auto empty = den == zero;
  const vec<C> safe = xsimd::select(empty, one, den);
  // The average lies in the hull of the values; only where rounding carries it past the largest number is it put back
  // there, so that elsewhere the bits remain those of the fast path.
  const vec<C> inverse_scale = load(inverse_scales);
  const vec<C> ratio = num / safe;
  vec<C> average = ratio * inverse_scale;
  const auto over = ((xsimd::abs)(average) == vec<C>(inf)) && ((xsimd::abs)(ratio) < vec<C>(inf));
  const vec<C> hull = xsimd::select(ratio > zero, largest * by, -(largest * by));
  average = xsimd::select(over, hull * inverse_scale, average);
  const vec<C> exponent = xsimd::select(distant, zero, top);
  const vec<C> base_hi = xsimd::select(distant, start, zero);
  const vec<C> base_lo = xsimd::select(distant, most_lo, zero);
  vec<C> lse = log_from_base<C>({base_hi, base_lo}, safe, exponent);
  lse = xsimd::select(den == den, lse, den);
  const split_exp<C> parts = split_denominator<C>(safe);
  const vec<C> inverse = xsimd::select(den == den, one / parts.mantissa, den);
  store(out.average, xsimd::select(empty, zero, average));
  store(out.num, xsimd::select(over, hull, num));
  store(out.den, xsimd::select(over, one, safe));
  store(out.inverse_scale, inverse_scale);
  store(out.lse, xsimd::select(empty, vec<C>(-inf), lse));
  store(out.inverse, xsimd::select(empty, zero, inverse));
  store(out.exponent, exponent + parts.exponent);
  store(out.base_hi, base_hi);
  store(out.base_lo, base_lo);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
