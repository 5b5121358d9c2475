// SPDX-License-Identifier: Apache-2.0
/// @file scan/kernel.hpp  The kernel of the scan: keys into num and den, and the average of every row that passes.
#pragma once

#include <cmath>

#include "emit.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// The references and peaks that sums without a term will have after their first key, the only row of `keys`: fold_any
/// chooses the same. So the first rows of a chunk need not be for it.
template <class C>
[[gnu::flatten]] inline void enter_references(const fold_lanes<C>& chunk, const segment& x, const panel<C>& keys,
                                              const panel<C>& values) {
  const C* const row = keys.data;
  const C* const v = values.data;
  const index_t width = x.width, lane = x.lane;
  C* const to = chunk.exponent + lane;
  C* const peaks = chunk.peak + lane;
  const vec<C> range(exp_constants<C>::range), slack(scan_tuning<C>::slack), empty(empty_exponent<C>);
  const vec<C> low(scan_tuning<C>::value_low), high(scan_tuning<C>::value_high);
  for (index_t i = 0; i < width; i += lanes<C>) {
    const vec<C> k = load(row + i), size = (xsimd::abs)(load(v + i));
    const auto seen = (xsimd::abs)(k) <= range;
    store(to + i, xsimd::select(seen, exponent_of<C>(k) + slack, empty));
    store(peaks + i, xsimd::select(seen & (size >= low) & (size <= high), size, vec<C>(C(0))));
  }
  // Idle lanes must not keep their neighbours from being near.
  for (index_t l = x.count; l < width; ++l) peaks[l] = C(1);
}

/// Finds the units of a chunk's lanes, row by row: a lane that has none is marked by 0, and beside it stands the first
/// key that was not hidden, or -inf. Rows of a causal call see that key whatever follows. Others can do without where
/// the next one differs: weights that differ are not rounded in one direction, and keys alone are summed 0.05 to 0.1
/// slower with a unit. True once all lanes are settled.
template <class C>
[[gnu::flatten]] inline bool enter_units(const fold_lanes<C>& chunk, const segment& x, const panel<C>& keys,
                                         bool causal) {
  const vec<C> zero(C(0)), one(C(1)), hidden(-std::numeric_limits<C>::infinity());
  auto all = zero == zero;
  for (index_t i = 0; i < x.width; i += lanes<C>) {
    const index_t l = x.lane + i;
    const vec<C> key = load(keys.data + i), unit = load(chunk.key_unit + l), first = load(chunk.per_key_unit + l);
    const auto seen = (unit == zero) & differs<C>(key, hidden), fresh = seen & (first == hidden);
    vec<C> found = unit;
    if (causal) {
      found = xsimd::select(fresh, weight_unit<C>(key), unit);
    } else {
      const auto next = seen & !fresh, equal = next & (key == first);
      found = xsimd::select(next, one, unit);
      if (xsimd::any(equal)) found = xsimd::select(equal, weight_unit<C>(key), found);
    }
    all = all & differs<C>(found, zero);
    chunk.set_unit(l, found, xsimd::select(fresh, key, first));
  }
  return xsimd::all(all);
}
/// Whether no lane of a call that is not causal needs a unit, as the first two keys of a chunk tell: most chunks.
template <class C>
[[gnu::flatten]] inline bool needs_no_units(const segment& x, const panel<C>& keys) {
  const vec<C> hidden(-std::numeric_limits<C>::infinity());
  const C *const first = keys.row(0), *const second = keys.row(1);
  auto all = hidden == hidden;
  for (index_t i = 0; i + lanes<C> <= x.count; i += lanes<C>) {
    const vec<C> a = load(first + i), b = load(second + i);
    all = all & (a != b) & (a != hidden) & (b != hidden);
  }
  for (index_t i = x.count / lanes<C> * lanes<C>; i < x.count; ++i)
    if (first[i] == second[i] || !std::isfinite(first[i]) || !std::isfinite(second[i])) return false;
  return xsimd::all(all);
}
/// Begins or ends the search for them; the end tells whether some is not 1.
template <class C>
inline void begin_units(const fold_lanes<C>& chunk, const segment& x) {
  const vec<C> none(-std::numeric_limits<C>::infinity());
  for (index_t l = x.lane; l < x.lane + x.width; l += lanes<C>) chunk.set_unit(l, vec<C>(C(0)), none);
  for (index_t l = x.count; l < x.width; ++l) chunk.key_unit[x.lane + l] = C(1);
}
template <class C>
inline bool end_units(const fold_lanes<C>& chunk, const segment& x) {
  const vec<C> zero(C(0)), one(C(1));
  bool any = false;
  for (index_t l = x.lane; l < x.lane + x.width; l += lanes<C>) {
    const vec<C> found = load(chunk.key_unit + l), unit = xsimd::select(found == zero, one, found);
    const bool ones = xsimd::all(unit == one);
    chunk.set_unit(l, unit, ones ? one : one / unit);
    any = any || !ones;
  }
  return any;
}

/// One key of any kind: hidden, out of range, above the maximum, with an extreme value. A lane gets the bits here that
/// fold_columns gives it, so its result does not depend on what its neighbours need.
template <class C, emission What, class T>
[[gnu::noinline]] void fold_any(const fold_job<C, T>& job, index_t l, index_t i, index_t r, const T* key,
                                const T* value) {
  const fold_lanes<C>& chunk = job.chunk;
  const vec<C> zero(C(0));
  const vec<C> one(C(1));
  const vec<C> x = load_as<C>(key);
  const auto hidden = x == vec<C>(-std::numeric_limits<C>::infinity());
  const vec<C> v = xsimd::select(hidden, zero, load_as<C>(value));

  const vec<C> old_peak = load(chunk.peak + l);
  const vec<C> peak = raise_peak<C>(old_peak, v);
  const vec<C> shift = value_shift<C>(peak);
  vec<C> num = times_pow2<C>(load(chunk.num + l), value_shift<C>(old_peak) - shift);
  vec<C> den = load(chunk.den + l);

  const reference<C> f = chunk.in(l);
  const vec<C> clamped = xsimd::select(x < vec<C>(underflow_clamp<C>), vec<C>(underflow_clamp<C>), x);
  const split_exp<C> e = exp_weight<C>(clamped);
  reference<C> next = f;
  next.exponent = xsimd::select(clamped > highest_key<C>(f.exponent),
                                exponent_of<C>(clamped) + vec<C>(scan_tuning<C>::slack), f.exponent);
  vec<C> scale = times_pow2<C>(one, f.exponent - next.exponent);
  const vec<C> unit = load(chunk.key_unit + l);
  vec<C> weight = times_pow2<C>(e.mantissa * load(chunk.per_key_unit + l), e.exponent - next.exponent);

  const auto wide = differs<C>(f.base, zero);
  const auto distant = (!hidden) & (wide | ((xsimd::abs)(x) > vec<C>(exp_constants<C>::range)));
  if (xsimd::any(distant | wide)) {
    const joined<C> j = join_far<C>(f, {x, zero});
    // k = +inf has no finite maximum to subtract: inf - inf.
    const auto endless = x == vec<C>(std::numeric_limits<C>::infinity());
    weight = xsimd::select(distant, xsimd::select(endless, x - x, j.second), xsimd::select(wide, zero, weight));
    // Weights e^(k - base) have no unit, and so their sums have none.
    scale = xsimd::select(distant, j.first * unit, xsimd::select(wide, one, scale));
    const auto without = distant | wide;
    chunk.set_unit(l, xsimd::select(without, one, unit), xsimd::select(without, one, load(chunk.per_key_unit + l)));
    next.base = xsimd::select(distant, j.common.base, f.base);
    next.exponent = xsimd::select(distant, j.common.exponent, xsimd::select(wide, f.exponent, next.exponent));
  }
  num = mul_add(weight, times_pow2<C>(v, -shift), num * scale);
  den = mul_add(weight, one, den * scale);
  store(chunk.num + l, num);
  store(chunk.den + l, den);
  store(chunk.peak + l, peak);
  store(chunk.base + l, next.base);
  store(chunk.exponent + l, next.exponent);
  if (xsimd::any(differs<C>(next.exponent, f.exponent) | distant | differs<C>(peak, old_peak))) {
    const vec<C> num_more = times_pow2<C>(load(chunk.num_more + l), value_shift<C>(old_peak) - shift);
    store(chunk.num_more + l, num_more * scale);
    store(chunk.den_more + l, load(chunk.den_more + l) * scale);
    update_view<C, What != emission::nothing>(chunk, job.before, job.view, l, job.lowers);
  }
  if constexpr (What != emission::nothing) emit_any<C>(job, l, i, r, num, den);
}

/// Whether the keys of a column fit its reference, see fold_view::limit, and are sure to be in range.
template <class C, index_t rows>
inline vec_mask<C> in_range(const vec<C> (&k)[rows], const vec<C>& limit) {
  vec<C> top = exp_steps<C>(k[0]);
  vec<C> bottom = top;
  AFT_UNROLL(4)
  for (index_t r = 1; r < rows; ++r) {
    const vec<C> steps = exp_steps<C>(k[r]);
    top = max_ignoring_nan<C>(top, steps);
    bottom = min_ignoring_nan<C>(bottom, steps);
  }
  return (top <= limit) & (bottom >= vec<C>(step_zero<C> - far_step<C>));
}

/// Which columns fold_columns takes: those whose keys and queries are all near, so that exp_near serves them, or others
/// that need no change of reference.
enum class reach { ordinary, wide };

/// Folds whole panels of n rows from `at` on, up to the first column that is of another kind; returns where it stopped.
/// A function for each kind, without a call in its loops, so that constants stay in registers, and for many panels: a
/// call for each took 110 cycles, 0.14 of the loop's time on 512 channels. Flattened: left to itself the compiler calls
/// exp and the emitter, which then spill and reload every vector (1.8x). All that the loops read is copied first: a
/// vector store may alias anything in memory, so that pointers held there would be loaded again after each.
template <class C, emission What, reach Reach, index_t rows, class T>
[[gnu::flatten, gnu::noinline]] panel_place fold_columns(const fold_job<C, T>& job, const segment& x,
                                                         const fold_inputs<C, T>& in, index_t n, panel_place at) {
  constexpr bool gated = What == emission::gated;
  const fold_lanes<C> chunk = job.chunk;
  const fold_view<C> view = job.view;
  const panel<T> all_keys = in.keys, all_values = in.values;
  const scan_rows<C, T> out = in.out;
  const index_t lane = x.lane, width = x.width, turn = turn_of<C>(x.width, job.uncached);
  const bool uncached = job.uncached, units = job.units;
  const bool streamed = out.streamed, prefetched = out.prefetched;
  const vec<C> low(scan_tuning<C>::value_low);
  const vec<C> high(scan_tuning<C>::value_high);
  const vec<C> near_q(shared_gate<C>);
  const vec<C> zero(C(0));
  while (at.r + rows <= n) {
    const index_t end = at.i < turn ? turn : width;
    const auto next = [&](const panel<T>& of) {
      return prefetch_lines<C>::with_turn(of.from(at.r), width, uncached, end == width, rows).down(at.i);
    };
    const auto here = [&](const panel<T>& of) { return row_walk<C, T>(of.from(at.r), rows, at.i); };
    row_walk<C, T> keys = here(all_keys), values = here(all_values), q = here(out.q), y = here(out.y);
    line_walk next_keys = next(all_keys), next_values = next(all_values), next_q = next(out.q), next_y = next(out.y);
    for (index_t i = at.i; i < end; i += lanes<C>) {
      const index_t l = lane + i;
      vec<C> k[rows], v[rows], queries[rows];
      vec<C> size = zero, size_q = zero;
      vec<C> peak = zero;
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        k[r] = load_as<C>(keys.here());
        v[r] = load_as<C>(values.here());
        keys.next();
        values.next();
        next_keys.prefetch_into();
        next_values.prefetch_into();
        if constexpr (gated) {
          queries[r] = load_as<C>(q.here());
          q.next();
          next_q.prefetch_into();
          if (prefetched) next_y.prefetch_writes();
          size_q = larger_size<C>(size_q, queries[r]);
        }
        size = larger_size<C>(size, k[r]);
        peak = larger_size<C>(peak, v[r]);
      }
      keys.next_column();
      values.next_column();
      next_keys.next_column();
      next_values.next_column();
      if constexpr (gated) {
        q.next_column();
        next_q.next_column();
        next_y.next_column();
      }
      const auto within = (size <= load(view.ordinary_size + l)) & (size_q <= near_q) & (peak <= high);
      // First what is independent, then the chain through the sums: as much as the scheduler holds then has work.
      const vec<C> exponent = load(chunk.exponent + l);
      vec<C> weight[rows], exp_minus[rows];
      if constexpr (Reach == reach::ordinary) {
        if (!xsimd::all(within)) return {at.r, i};
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) {
          weight[r] = exp_near<C>(k[r], exponent);
          // Rows of a causal call nearly always have a unit.
          if constexpr (gated) weight[r] = weight[r] * load(chunk.per_key_unit + l);
        }
        if (!gated && units) {
          const vec<C> per_unit = load(chunk.per_key_unit + l);
          AFT_UNROLL(4)
          for (index_t r = 0; r < rows; ++r) weight[r] = weight[r] * per_unit;
        }
        AFT_UNROLL(4)
        for (index_t r = 0; gated && r < rows; ++r) exp_minus[r] = exp_near<C, true>(queries[r], zero);
      } else {
        if (What != emission::any && xsimd::all(within)) return {at.r, i};
        auto plain = (peak <= high) & in_range<C, rows>(k, load(view.limit + l));
        // A row may see tiny values alone, whatever the panel's later rows hold.
        vec<C> seen = load(chunk.peak + l);
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) {
          seen = larger_size<C>(seen, v[r]);
          if (What != emission::nothing || r + 1 == rows) plain = plain & ((seen >= low) | (seen == zero));
        }
        if (!xsimd::all(plain)) return {at.r, i};
        store(chunk.peak + l, seen);
        const vec<C> limit =
            What == emission::nothing ? nearest_keys<C>(exponent) : near_limit<C>(exponent, load(view.den_unit + l));
        store(view.ordinary_size + l, xsimd::select(seen == zero, load(view.ordinary_size + l), limit));
        const vec<C> per_unit = load(chunk.per_key_unit + l);
        AFT_UNROLL(4)
        for (index_t r = 0; r < rows; ++r) {
          const split_exp<C> e = exp_weight<C>(k[r]);
          weight[r] = times_pow2<C>(e.mantissa * per_unit, e.exponent - exponent);
        }
        AFT_UNROLL(4)
        for (index_t r = 0; gated && r < rows; ++r) exp_minus[r] = quotient_exp_minus<C>(queries[r]);
      }
      vec<C> num = load(chunk.num + l);
      vec<C> den = load(chunk.den + l);
      const fold_past<C> past(view, l);
      AFT_UNROLL(4)
      for (index_t r = 0; r < rows; ++r) {
        num = mul_add(weight[r], v[r], num);
        den += weight[r];
        if constexpr (gated && Reach == reach::ordinary) {
          // The unit is 1, and sums cost less here than products.
          put_row<C>(y.here(), exp_minus_quotient<C>(num + past.num_before, den + past.den_before, exp_minus[r]),
                     streamed);
          y.next();
        } else if constexpr (gated) {
          const vec<C> num_of_y = mul_add(num, past.unit, past.num_before);
          const vec<C> den_of_y = mul_add(den, past.unit, past.den_before);
          put_row<C>(y.here(), any_exp_minus_quotient<C>(num_of_y, den_of_y, exp_minus[r]), streamed);
          y.next();
        } else if constexpr (What == emission::any) {
          emit_ordinary<C>(out, view, past, l, i, at.r + r, num, den);
        }
      }
      if constexpr (gated) y.next_column();
      store(chunk.num + l, num);
      store(chunk.den + l, den);
    }
    at = at.after(end, width, rows);
  }
  return at;
}

/// fold_columns for both kinds: returns the first place from `at` on that is for fold_any.
template <class C, emission What, index_t rows, class T>
inline panel_place fold_ordinary(const fold_job<C, T>& job, const segment& x, const fold_inputs<C, T>& in, index_t n,
                                 panel_place at) {
  while (at.r + rows <= n) {
    // What else is wanted besides y takes longer than the wide kind, which serves all.
    if constexpr (What != emission::any) at = fold_columns<C, What, reach::ordinary, rows>(job, x, in, n, at);
    if (at.r + rows > n) break;
    const panel_place wide = fold_columns<C, What, reach::wide, rows>(job, x, in, n, at);
    if (wide.r == at.r && wide.i == at.i) break;
    at = wide;
  }
  return at;
}

/// Joins the sums of a run with those of the chunk's runs before it.
template <class C, bool Emit>
AFT_COMPILE_ONCE inline void end_run(const fold_lanes<C>& of, const fold_view<C>& seen, index_t lane, index_t width) {
  const fold_lanes<C> chunk = of;  // copies, see fold_columns
  const fold_view<C> view = seen;
  const vec<C> zero(C(0));
  for (index_t l = lane; l < lane + width; l += lanes<C>) {
    const vec<C> num = load(chunk.num_more + l) + load(chunk.num + l);
    const vec<C> den = load(chunk.den_more + l) + load(chunk.den + l);
    store(chunk.num_more + l, num);
    store(chunk.den_more + l, den);
    store(chunk.num + l, zero);
    store(chunk.den + l, zero);
    if constexpr (Emit) view.begin_after(l, num, den);
  }
}

/// Folds the next n rows of a segment, so many at a time.
template <class C, emission What, index_t rows, class T>
[[gnu::noinline]] void scan_panels(fold_job<C, T>& job, const segment& x, const fold_inputs<C, T>& in, index_t n) {
  constexpr index_t run = scan_tuning<C>::run;
  static_assert(run % rows == 0);
  if constexpr (What != emission::nothing) job.out = in.out;
  for (index_t begin = 0; begin < n;) {
    const index_t stop = min_of(begin + run - (job.row + begin) % run, n);
    for (panel_place at{begin, 0}; at.r < stop;) {
      at = fold_ordinary<C, What, rows>(job, x, in, stop, at);
      const index_t end = min_of(at.r + rows, stop);
      for (index_t r = at.r; r < end; ++r)
        fold_any<C, What>(job, x.lane + at.i, at.i, r, in.keys.row(r) + at.i, in.values.row(r) + at.i);
      at = at.after(at.i + lanes<C>, x.width, rows);
    }
    begin = stop;
    if ((job.row + stop) % run == 0) end_run<C, What != emission::nothing>(job.chunk, job.view, x.lane, x.width);
  }
  job.row += n;
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
