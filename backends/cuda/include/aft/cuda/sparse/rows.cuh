// SPDX-License-Identifier: Apache-2.0
/// @file sparse/rows.cuh  AFT-conv with a sparse filter: AFT-simple and a few keys a row (AFT Eq. 6, below Eq. 10).
///
/// A row's sums are those of all keys that it sees, which the rows of a column share or carry on, and e^w - 1 times
/// each key that a tap reads. Where w < 0 that subtracts, so a row stands only where what is taken away is at most a
/// quarter of the mass: the rest is then known to rounding. Since m taps read each key m times, taps hold more than
/// that in fewer than 4 m rows of a column without causal order. Those are flagged and summed by definition, as is
/// everything at the ends of the type. Where pairs outside the filter are excluded a row is its taps alone.
#pragma once

#include "taps.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The pairs of one row, for the exact sums.
template <class C>
struct sparse_row_pairs {
  const device_call<C>& p;
  const tap_table<C>& table;
  index_t b, h, t;

  template <class Visit>
  AFT_DEVICE void each(const Visit& visit) const {
    const device_tap<C>* const taps = table.of(h);
    const point at = point_of(table.queries, t);
    index_t i = 0;
    const auto see = [&](index_t s, C w) {
      visit(s, pair_mask(p) && mask_hides(p, b, t, s) ? -number<C>::infinity : w);
    };
    if (p.excluded) {
      for (; i < table.count; ++i)
        if (const index_t s = tapped_key(table, taps[i], at, t); s >= 0) see(s, taps[i].value);
      return;
    }
    const span keys = keys_of(p, t, t + 1);
    for (index_t s = keys.lo; s < keys.hi; ++s) {
      C w = C(0);
      for (index_t read = 0; i < table.count && (read = tapped_key(table, taps[i], at, t)) <= s; ++i)
        if (read == s) w = taps[i].value;
      see(s, w);
    }
  }
};

/// A row's sums with its taps, and what says whether they can stand.
template <class C>
struct sparse_row_sum {
  key_sum<C> sum;
  C removed = C(0);  ///< of den, by weights below 1
  C hidden = C(0);   ///< the largest |v| behind a tap of -inf
  int hides = 0;     ///< taps of -inf that read a key

  /// A key that is in the sums, and weighs e^w - 1 more.
  AFT_DEVICE void change(C key, C value, const device_tap<C>& tap) {
    if (key == -number<C>::infinity || tap.gain.mantissa == C(0)) return;
    const split_exp<C> own = stage_logit(key);
    const C exponent = own.exponent + tap.gain.exponent;
    const C top = larger(sum.max, exponent);
    const C scale = pow2<C>(sum.max - top);
    const C factor = own.mantissa * tap.gain.mantissa * pow2<C>(exponent - top);
    sum.num = fused(sum.num, scale, factor * value);
    sum.den = fused(sum.den, scale, factor);
    sum.max = top;
    removed = fused(removed, scale, factor < C(0) ? -factor : C(0));
    if (tap.weight.mantissa != C(0)) return;
    ++hides;
    hidden = larger(hidden, magnitude(value));
  }

  /// A key that only the tap reads.
  AFT_DEVICE void add(C key, C value, const device_tap<C>& tap) {
    if (key == -number<C>::infinity || tap.weight.mantissa == C(0)) return;
    const split_exp<C> own = stage_logit(key);
    const C exponent = own.exponent + tap.weight.exponent;
    const C top = larger(sum.max, exponent);
    const C scale = pow2<C>(sum.max - top);
    const C factor = own.mantissa * tap.weight.mantissa * pow2<C>(exponent - top);
    sum.num = fused(sum.num, scale, factor * value);
    sum.den = fused(sum.den, scale, factor);
    sum.largest = larger(sum.largest, magnitude(value));
    sum.max = top;
  }

  /// Beside what a tap of -inf hides the row has to see a value of about the size that num was rounded to: another key
  /// with the largest of the column, or an average of that size.
  AFT_DEVICE bool stands() const {
    const bool shown = (hides == 1 && hidden < sum.largest) || hidden <= C(4) * magnitude(average_of(sum));
    return C(3) * removed <= sum.den && (hides == 0 || shown) && proven(sum);
  }
};

/// The fold of all keys of each column. Not causal only.
template <class C>
AFT_KERNEL(total_threads, 1)
sparse_total_kernel(const AFT_PARAMETER run_plan runs, const AFT_PARAMETER scan_plan<key_sum<C>> plan,
                    key_sum<C>* totals) {
  const run_place at = run_place::of(runs, block_index());
  const key_sum<C> sum = merged_runs<tuning::wide_run_warps>(runs, at, plan.partials, runs.warps);
  if (at.warp == 0 && at.exists) totals[at.column] = sum;
}

/// What rows begin with.
enum class sparse_start {
  nothing,  ///< pairs outside the filter are excluded, or a mask makes pairs different, and rows go by definition
  total,    ///< the fold of all keys
  prefix,   ///< that of the keys up to the row's own, which is carried on
};

/// The rows of `plan`, whose positions are those of keys where a prefix is carried on: row t stands at t +
/// plan.diagonal.
template <class C>
AFT_KERNEL(scan_threads, 2)
sparse_rows_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<key_sum<C>> plan,
                   const sparse_start start, const key_sum<C>* totals, const AFT_PARAMETER tap_table<C> table,
                   const AFT_PARAMETER fold_plan rows) {
  const scan_place at = scan_place::of(plan);
  // No row stands in a chunk of keys before the first one.
  if (!at.exists || at.end <= plan.diagonal) return;
  const index_t b = at.col.b, c = at.col.c;
  const device_tap<C>* const taps = table.of(at.col.exists ? quotient(c, quotient(p.d, table.heads)) : 0);
  key_sum<C> shared_sum;
  if (at.col.exists && start == sparse_start::prefix) shared_sum = plan.partials[at.at];
  if (at.col.exists && start == sparse_start::total) shared_sum = totals[b * p.d + c];
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t x = at.begin; x < at.end; ++x) {
    if (at.col.exists && start == sparse_start::prefix) {
      const C key = load_key(p, b, x, c);
      if (key != -number<C>::infinity) add_key(key, load<C>(p.v, p.positions, b, x, c), shared_sum);
    }
    const index_t t = x - plan.diagonal;
    if (t < 0) continue;
    sparse_row_sum<C> row{shared_sum};
    bool done = at.col.exists && is_padding(p, b, t);
    if (at.col.exists && !done && (p.excluded || start != sparse_start::nothing)) {
      const point place = point_of(table.queries, t);
      AFT_DEVICE_UNROLL_BY(1)
      for (index_t i = 0; i < table.count; ++i) {
        const index_t s = tapped_key(table, taps[i], place, t);
        if (s < 0 || (pair_mask(p) && mask_hides(p, b, t, s))) continue;
        const C key = load_key(p, b, s, c);
        if (key == -number<C>::infinity) continue;
        const C value = load<C>(p.v, p.positions, b, s, c);
        if (p.excluded) {
          row.add(key, value, taps[i]);
        } else {
          row.change(key, value, taps[i]);
        }
      }
      done = row.stands();
    }
    const std::uint32_t word = ballot(at.col.exists && !done);
    if (thread_index() % warp_size == 0) rows.flags[flag_word(rows, t, at.column_tile)] = word;
    if (!at.col.exists || !done) continue;
    row_result<C> result;
    result.average = average_of(row.sum);
    result.den = row.sum.den;
    result.exponent = row.sum.max;
    row_epilogue(p, b, t, c, result);
  }
}

/// The same sums without a base, where the largest logit is within range: a value far below 0 alone gives a row a base,
/// and one row with a base makes the sums over all queries, in which gradients of keys begin, no number.
template <class C>
AFT_DEVICE row_result<C> without_base(row_result<C> r) {
  const C x = C(2) * r.base_hi;
  if (!(r.den > C(0)) || !(magnitude(x) <= number<C>::range)) return r;
  const split_exp<C> e = exp_split<C>(x);
  r.den = e.mantissa * fused(r.den, C(2) * r.base_lo, r.den);
  r.exponent += e.exponent;
  r.base_hi = r.base_lo = C(0);
  return r;
}

template <class C>
AFT_KERNEL(exact_threads, 2)
sparse_exact_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER tap_table<C> table,
                    const AFT_PARAMETER fold_plan plan) {
  visit_flagged(plan, [&](const flagged_place& at) {
    const index_t b = at.col.b, c = at.col.c;
    const sparse_row_pairs<C> pairs{p, table, b, c / (p.d / table.heads), at.row};
    row_epilogue(p, b, at.row, c, without_base(exact_row_of(p, b, c, pairs)));
  });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
