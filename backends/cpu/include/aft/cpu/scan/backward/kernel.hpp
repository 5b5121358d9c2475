// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/kernel.hpp  The kernel of the backward scan: rows into A and B, and the gradients of every key
/// that passes.
///
///   A[s] = sum_{t sees s} e^-lse[t] g[t]     B[s] = sum_{t sees s} e^-lse[t] g[t] (o[t] - c)
///   dv[s] = e^k[s] A                         dk[s] = dv[s] (v[s] - c) - e^k[s] B
///
/// The centre c cancels. Without it, values of a common size that is large against their differences would lose in
/// v A - B the digits that v - o keeps.
#pragma once

#include "../../math/exp_weight.hpp"
#include "../panel.hpp"
#include "sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Rows: g = dy gate(q), the average o, and e^-lse = inverse * 2^power * e^base; inverse is 0 where a row saw no key.
template <class C>
struct reverse_rows {
  panel<C> g, o, inverse, power, base;
  bool rebased = false;  ///< some base is not 0

  /// The same from the last of n rows to the first.
  reverse_rows reversed(index_t n) const {
    const auto turned = [n](const panel<C>& of) { return panel<C>{of.row(n - 1), -of.stride}; };
    return {turned(g), turned(o), turned(inverse), turned(power), turned(base), rebased};
  }
};

/// A vector of gradients, to where they are stored as T.
template <class C, class T>
AFT_INLINE void put_gradient(T* to, const vec<C>& x, bool streamed) {
  if constexpr (std::is_same_v<T, C>) {
    put(to, x, streamed);
  } else {
    store_as<C>(to, x);
  }
}

/// Keys and where their gradients go, stored as T; null for one that is not wanted.
template <class C, class T = C>
struct reverse_keys {
  panel<T> k{}, v{}, dk{}, dv{};
  bool dk_streamed = false;  ///< written by streaming stores
  bool dv_streamed = false;
  bool uncached = false;  ///< keys and values are in memory, not in a cache
  bool added = false;     ///< to what dk and dv hold

  /// Those from key r on.
  reverse_keys from(index_t r) const {
    return {k.from(r), v.from(r), dk.from(r), dv.from(r), dk_streamed, dv_streamed, uncached, added};
  }
  /// `added` where T is C alone, see far_keys::added.
  [[gnu::always_inline]] static void put(T* to, const vec<C>& x, bool streamed, [[maybe_unused]] bool added) {
    if constexpr (std::is_same_v<T, C>) {
      put_gradient<C>(to, added ? x + load(to) : x, streamed);
    } else {
      put_gradient<C>(to, x, streamed);
    }
  }
};

template <class C>
struct reverse_job {
  reverse_lanes<C> chunk, after;
  reverse_view<C> view;
  reverse_rows<C> rows;
  reverse_keys<C> keys;
};

/// Brings the view up to date after a lane's reference or value shift changed.
template <class C, bool Emit>
inline void update_reverse_view(const reverse_lanes<C>& chunk, const reverse_lanes<C>& after,
                                const reverse_view<C>& view, index_t l) {
  const vec<C> zero(C(0));
  auto special = differs<C>(load(chunk.base + l), zero) | differs<C>(value_shift<C>(load(chunk.g_peak + l)), zero) |
                 differs<C>(value_shift<C>(load(chunk.o_peak + l)), zero);
  if constexpr (Emit) {
    const reverse_join<C> j = join_reverse<C>(after, chunk, l);
    // A larger row would change how the parts join.
    special = special | differs<C>(j.g_shift, zero) | differs<C>(j.o_shift, zero);
    const vec<C> a = load(after.a + l) * j.a_first;
    store(view.a_unit + l, j.a_second);
    store(view.b_unit + l, j.b_second);
    store(view.cross + l, j.second_off * j.a_second);
    store(view.a_after + l, a);
    store(view.b_after + l, mul_add(j.first_off, a, load(after.b + l) * j.b_first));
    store(view.base + l, j.references.common.base);
    store(view.centre + l, j.centre);
    const vec<C> power = j.references.common.exponent + j.g_shift;
    store(view.a_power + l, power);
    store(view.b_power + l, power + j.o_shift);
  }
  store(view.limit + l, xsimd::select(special, vec<C>(-std::numeric_limits<C>::infinity()), load(chunk.exponent + l)));
}

/// A lane's view in registers, for several keys.
template <class C>
struct reverse_past {
  vec<C> a_unit, b_unit, cross, a_after, b_after, base, centre, a_power, b_power;
  reverse_past(const reverse_view<C>& view, index_t l)
      : a_unit(load(view.a_unit + l)),
        b_unit(load(view.b_unit + l)),
        cross(load(view.cross + l)),
        a_after(load(view.a_after + l)),
        b_after(load(view.b_after + l)),
        base(load(view.base + l)),
        centre(load(view.centre + l)),
        a_power(load(view.a_power + l)),
        b_power(load(view.b_power + l)) {}
};

/// A and B as a key sees them.
template <class C>
struct reverse_sums {
  vec<C> a, b;
  reverse_sums(const vec<C>& known_a, const vec<C>& known_b) : a(known_a), b(known_b) {}
  reverse_sums(const reverse_past<C>& past, const vec<C>& chunk_a, const vec<C>& chunk_b)
      : a(mul_add(chunk_a, past.a_unit, past.a_after)),
        b(mul_add(chunk_b, past.b_unit, mul_add(chunk_a, past.cross, past.b_after))) {}
};

/// The gradients of key r, column i of the segment. `Ordinary`: no g and no average is above scan_tuning::value_high.
template <class C, bool Ordinary = false, class T>
inline void emit_key(const reverse_keys<C, T>& keys, const reverse_past<C>& past, index_t i, index_t r,
                     const reverse_sums<C>& sum) {
  const vec<C> zero(C(0));
  const vec<C> k = load_as<C>(keys.k.row(r) + i);
  const auto hidden = k == vec<C>(-std::numeric_limits<C>::infinity());
  const vec<C> above = max_ignoring_nan<C>(k + past.base, vec<C>(underflow_clamp<C>));
  const split_exp<C> e = exp_weight<C>(min_ignoring_nan<C>(above, vec<C>(-underflow_clamp<C>)));
  const vec<C> dv = raise<C>(e.mantissa * sum.a, e.exponent + past.a_power);
  if (keys.dv.data != nullptr)
    keys.put(keys.dv.row(r) + i, xsimd::select(hidden, zero, dv), keys.dv_streamed, keys.added);
  if (keys.dk.data == nullptr) return;
  const vec<C> rest = raise<C>(e.mantissa * sum.b, e.exponent + past.b_power);
  const vec<C> v = load_as<C>(keys.v.row(r) + i);
  vec<C> dk = mul_add(dv, v - past.centre, -rest);
  if constexpr (!Ordinary) {
    // Both terms may leave the range where their difference does not. In a unit that leaves them room, then, and where
    // dv is small as it is, so that nothing of it is lost.
    const vec<C> largest(exp_constants<C>::largest);
    if (const auto within = (xsimd::abs)(dk) <= largest; !xsimd::all(within)) {
      const vec<C> half(C(0.5)), room(C(64));
      const auto large = ((xsimd::abs)(dv) > vec<C>(C(1))) | ((xsimd::abs)(rest) > largest);
      const vec<C> unit = xsimd::select(large, room, zero);
      const vec<C> low_dv = raise<C>(e.mantissa * sum.a, e.exponent + past.a_power - unit);
      const vec<C> low_rest = raise<C>(e.mantissa * sum.b, e.exponent + past.b_power - unit) * half;
      const vec<C> low = mul_add(low_dv, v * half - past.centre * half, -low_rest);
      dk = xsimd::select(within, dk, raise<C>(low, unit + vec<C>(C(1))));
    }
  }
  keys.put(keys.dk.row(r) + i, xsimd::select(hidden, zero, dk), keys.dk_streamed, keys.added);
}

/// One row of any kind into the sums; with Emit the view of keys follows them. A lane gets the bits here that
/// reverse_panel gives it.
template <class C, bool Emit>
[[gnu::noinline]] void reverse_any(const reverse_job<C>& job, index_t l, index_t i, index_t r) {
  const reverse_lanes<C>& chunk = job.chunk;
  const vec<C> zero(C(0));
  const vec<C> one(C(1));
  const vec<C> empty(empty_exponent<C>);
  const vec<C> inverse = load(job.rows.inverse.row(r) + i);
  const auto hidden = inverse == zero;
  const vec<C> g = xsimd::select(hidden, zero, load(job.rows.g.row(r) + i));
  const vec<C> o = xsimd::select(hidden, zero, load(job.rows.o.row(r) + i));
  const reference<C> row{job.rows.rebased ? xsimd::select(hidden, zero, load(job.rows.base.row(r) + i)) : zero,
                         xsimd::select(hidden, empty, load(job.rows.power.row(r) + i))};
  const reference<C> f = chunk.in(l);

  const vec<C> old_g = load(chunk.g_peak + l);
  const vec<C> old_o = load(chunk.o_peak + l);
  const vec<C> g_peak = raise_peak<C>(old_g, g);
  const vec<C> o_peak = raise_peak<C>(old_o, o);
  const vec<C> g_shift = value_shift<C>(g_peak);
  const vec<C> o_shift = value_shift<C>(o_peak);
  const vec<C> g_change = value_shift<C>(old_g) - g_shift;
  vec<C> a = times_pow2<C>(load(chunk.a + l), g_change);
  vec<C> b = times_pow2<C>(times_pow2<C>(load(chunk.b + l), g_change), value_shift<C>(old_o) - o_shift);

  const vec<C> centre = times_pow2<C>(load(chunk.centre + l), -o_shift);
  reference<C> next = f;
  next.exponent = xsimd::select(row.exponent > f.exponent, row.exponent + vec<C>(scan_tuning<C>::slack), f.exponent);
  vec<C> scale = times_pow2<C>(one, f.exponent - next.exponent);
  vec<C> weight = times_pow2<C>(inverse, row.exponent - next.exponent);
  const auto wide = differs<C>(f.base, zero);
  const auto distant = (!hidden) & (wide | differs<C>(row.base, zero));
  if (xsimd::any(distant | wide)) {
    const joined<C> j = join_far<C>(f, row);
    weight = xsimd::select(distant, inverse * j.second, xsimd::select(wide, zero, weight));
    scale = xsimd::select(distant, j.first, xsimd::select(wide, one, scale));
    next.base = xsimd::select(distant, j.common.base, f.base);
    next.exponent = xsimd::select(distant, j.common.exponent, xsimd::select(wide, f.exponent, next.exponent));
  }
  const vec<C> gs = times_pow2<C>(g, -g_shift);
  a = mul_add(weight, gs, a * scale);
  b = mul_add(weight * gs, times_pow2<C>(o, -o_shift) - centre, b * scale);
  store(chunk.a + l, a);
  store(chunk.b + l, b);
  store(chunk.g_peak + l, g_peak);
  store(chunk.o_peak + l, o_peak);
  store(chunk.base + l, next.base);
  store(chunk.exponent + l, next.exponent);
  if (xsimd::any(differs<C>(next.exponent, f.exponent) | distant | differs<C>(g_peak, old_g) |
                 differs<C>(o_peak, old_o)))
    update_reverse_view<C, Emit>(chunk, job.after, job.view, l);
}

/// The same, and the gradients of the key beside it.
template <class C, class T>
[[gnu::noinline]] void reverse_any_with_key(const reverse_job<C>& job, const reverse_keys<C, T>& keys, index_t l,
                                            index_t i, index_t r) {
  reverse_any<C, true>(job, l, i, r);
  const reverse_past<C> past(job.view, l);
  emit_key<C>(keys, past, i, r, reverse_sums<C>(past, load(job.chunk.a + l), load(job.chunk.b + l)));
}

/// Folds rows n - 1 down to 0 of the panels of a segment, n at most scan_tuning::rows; with Emit, key r after row r.
/// Flattened, and with copies of what the loop reads, as fold_columns is.
template <class C, bool Emit>
[[gnu::flatten]] inline void reverse_panel(const reverse_job<C>& job, const segment& x, index_t n) {
  constexpr index_t rows = scan_tuning<C>::rows;
  const reverse_lanes<C> chunk = job.chunk;
  const reverse_view<C> view = job.view;
  const reverse_rows<C> in = job.rows;
  const reverse_keys<C> keys = job.keys;
  const index_t width = x.width;
  const index_t lane = x.lane;
  const vec<C> low(scan_tuning<C>::value_low);
  const vec<C> high(scan_tuning<C>::value_high);
  const vec<C> zero(C(0));
  const prefetch_lines<C> next_k(keys.k, -1), next_v(keys.v, -1);
  // Where all rows see the same keys they have one weight and one average.
  const bool same = !Emit && in.inverse.stride == 0 && in.o.stride == 0;
  for (index_t i = 0; i < width; i += lanes<C>) {
    const index_t l = lane + i;
    if constexpr (Emit) {
      for (index_t r = 0; r < n; ++r) {
        next_k.prefetch_into(r, i);
        if (keys.dk.data != nullptr) next_v.prefetch_into(r, i);
      }
    }
    if (n == rows && !in.rebased) {
      const vec<C> centre = load(chunk.centre + l);
      vec<C> top(empty_exponent<C>);
      vec<C> g_peak = load(chunk.g_peak + l);
      vec<C> o_peak = load(chunk.o_peak + l);
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        g_peak = max_ignoring_nan<C>(g_peak, (xsimd::abs)(load(in.g.row(r) + i)));
        if (r > 0 && same) continue;
        top = max_ignoring_nan<C>(top, load(in.power.row(r) + i));
        o_peak = max_ignoring_nan<C>(o_peak, (xsimd::abs)(load(in.o.row(r) + i)));
      }
      auto special = (top > load(view.limit + l)) | (g_peak > high) | ((g_peak < low) & (g_peak > zero)) |
                     (o_peak > high) | ((o_peak < low) & (o_peak > zero));
      if (Emit && !xsimd::all((load(chunk.g_peak + l) >= low) & (load(chunk.o_peak + l) >= low))) {
        // A key may see tiny gradients or averages alone, whatever the panel's earlier rows hold.
        vec<C> seen_g = load(chunk.g_peak + l), seen_o = load(chunk.o_peak + l);
        for (index_t r = rows - 1; r >= 0; --r) {
          seen_g = max_ignoring_nan<C>(seen_g, (xsimd::abs)(load(in.g.row(r) + i)));
          seen_o = max_ignoring_nan<C>(seen_o, (xsimd::abs)(load(in.o.row(r) + i)));
          special = special | ((seen_g < low) & (seen_g > zero)) | ((seen_o < low) & (seen_o > zero));
        }
      }
      if (!xsimd::any(special)) {
        const vec<C> exponent = load(chunk.exponent + l);
        vec<C> a = load(chunk.a + l);
        vec<C> b = load(chunk.b + l);
        const reverse_past<C> past(view, l);
        vec<C> weight(C(0));
        vec<C> off(C(0));
        AFT_UNROLL(4)
        for (index_t r = rows - 1; r >= 0; --r) {
          if (r == rows - 1 || !same) {
            weight = times_pow2<C>(load(in.inverse.row(r) + i), load(in.power.row(r) + i) - exponent);
            off = load(in.o.row(r) + i) - centre;
          }
          const vec<C> g = load(in.g.row(r) + i);
          a = mul_add(weight, g, a);
          b = mul_add(weight * g, off, b);
          if constexpr (Emit) emit_key<C>(keys, past, i, r, reverse_sums<C>(past, a, b));
        }
        store(chunk.a + l, a);
        store(chunk.b + l, b);
        store(chunk.g_peak + l, g_peak);
        store(chunk.o_peak + l, o_peak);
        continue;
      }
    }
    for (index_t r = n - 1; r >= 0; --r) {
      if constexpr (Emit) {
        reverse_any_with_key<C>(job, job.keys, l, i, r);
      } else {
        reverse_any<C, false>(job, l, i, r);
      }
    }
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
