// SPDX-License-Identifier: Apache-2.0
/// @file scan/forward.cuh  AFT-simple (AFT Eq. 5): no pair has a weight of its own, so keys are folded once, O(B T d).
///
/// A warp folds a chunk of keys in 32 columns. Not causal, the chunks merge to one total that all queries share;
/// causal, they merge to a prefix per chunk, from which a second pass goes on key by key. Chunks merge in their order.
#pragma once

#include "../fold/exact.cuh"
#include "../fold/runs.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int scan_threads = warp_size * tuning::warps;
inline constexpr int total_threads = warp_size * tuning::wide_run_warps;

/// All columns (b, c), and the positions [0, length) in chunks of `chunk`. Where queries are folded, position x is that
/// of query x - diagonal: then a key's own query stands at the key's position.
template <class Partial>
struct scan_plan {
  columns cols{};
  index_t length = 0, chunk = 0, chunks = 0, column_tiles = 0;
  index_t diagonal = 0;
  Partial* partials = nullptr;  ///< (chunks, columns)

  index_t warps() const { return chunks * column_tiles; }
  index_t blocks() const { return ceil_div(warps(), tuning::warps); }
};

template <class Partial>
scan_plan<Partial> plan_scan(index_t B, index_t d, index_t length, index_t chunk = tuning::scan_length) {
  scan_plan<Partial> plan;
  plan.cols = {1, B, d, false};
  plan.length = length;
  plan.chunk = chunk;
  plan.chunks = ceil_div(length, chunk);
  plan.column_tiles = ceil_div(plan.cols.count(), tuning::lanes);
  return plan;
}

/// How many positions of a burst there are, of `rest`.
template <class C>
AFT_DEVICE int part_of_burst(index_t rest) {
  return rest < burst<C> ? static_cast<int>(rest) : burst<C>;
}

/// What a warp and its lane work on. Chunks of one column lie far apart, neighbours in a block next to each other.
struct scan_place {
  bool exists;  ///< the warp has a chunk
  index_t chunk, begin, end, column_tile, at;
  column col;

  template <class Partial>
  AFT_DEVICE static scan_place of(const scan_plan<Partial>& plan) {
    const index_t word = block_index() * tuning::warps + thread_index() / warp_size;
    scan_place place{};
    place.exists = word < plan.chunks * plan.column_tiles;
    place.chunk = quotient(word, plan.column_tiles);
    place.begin = place.chunk * plan.chunk;
    const index_t end = place.begin + plan.chunk;
    place.end = end < plan.length ? end : plan.length;
    place.column_tile = word - place.chunk * plan.column_tiles;
    const index_t j = place.column_tile * tuning::lanes + thread_index() % warp_size;
    place.col = plan.cols.at(0, j);
    place.at = place.chunk * plan.cols.count() + j;
    return place;
  }
};

/// Adds a key to the fold; one that is hidden or does not exist adds nothing, whatever its value holds.
template <class C>
AFT_DEVICE void add_key(C key, C value, key_sum<C>& sum) {
  if (key == -number<C>::infinity) return;
  const split_exp<C> weight = stage_logit(key);
  const C top = larger(sum.max, weight.exponent);
  const C scale = pow2<C>(sum.max - top);
  // A logit beyond the range is NaN, and so are the sums from here on.
  const C factor = weight.mantissa * pow2<C>(weight.exponent - top);
  sum.num = fused(sum.num, scale, factor * value);
  sum.den = fused(sum.den, scale, factor);
  sum.largest = larger(sum.largest, magnitude(value));
  sum.max = top;
}

template <class C, class Access = any_layout>
AFT_KERNEL(scan_threads, (sizeof(C) == 8 ? 3 : 4))
scan_chunks_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<key_sum<C>> plan) {
  const scan_place at = scan_place::of(plan);
  if (!at.exists || !at.col.exists) return;
  const auto keys = key_column<C, Access>::of(p, at.col);
  key_sum<C> sum;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t s = at.begin; s < at.end; s += burst<C>) {
    C key[burst<C>], value[burst<C>];
    keys.read(p, s, 0, part_of_burst<C>(at.end - s), key, value);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) add_key(key[i], value[i], sum);
  }
  plan.partials[at.at] = sum;
}

/// The fold of all keys of each column, finished but for the queries. Not causal only.
template <class C>
AFT_KERNEL(total_threads, 1)
scan_total_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER run_plan runs,
                  const AFT_PARAMETER scan_plan<key_sum<C>> plan, row_result<C>* totals) {
  const run_place at = run_place::of(runs, block_index());
  const key_sum<C> sum = merged_runs<tuning::wide_run_warps>(runs, at, plan.partials, runs.warps);
  if (at.warp != 0 || !at.exists) return;
  const column col = plan.cols.at(0, at.column);
  row_result<C> result;
  if (proven(sum)) {
    result.average = average_of(sum);
    result.den = sum.den;
    result.exponent = sum.max;
  } else {
    result = exact_row(p, col.b, 0, col.c, 0);
  }
  totals[at.column] = result;
}

/// Gates the totals and stores them for every query; `plan` has the queries.
template <class C, class Access = any_layout>
AFT_KERNEL(scan_threads, 3)
scan_spread_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<key_sum<C>> plan,
                   const row_result<C>* totals) {
  const scan_place at = scan_place::of(plan);
  if (!at.exists || !at.col.exists) return;
  const auto results = column_epilogue<C, Access>::of(p, at.col);
  const row_result<C> total = totals[at.col.b * p.d + at.col.c];
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t t = at.begin; t < at.end; t += burst<C>) {
    const int rows = part_of_burst<C>(at.end - t);
    C q[burst<C>] = {};
    if (results.reads_q(p)) results.q.template read<Access>(p.q, p.positions, t, 0, rows, q);
    results.gate(p, q);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i)
      if (i < rows) results.write(p, t + i, q[i], total);
  }
}

/// Replaces each chunk's fold by that of all chunks before it.
template <class C>
AFT_KERNEL(merge_threads<key_sum<C>>, 1)
scan_prefix_kernel(const AFT_PARAMETER run_plan runs, key_sum<C>* const folds) {
  const run_place at = run_place::of(runs, block_index());
  const key_sum<C> before = merged_runs<run_warps<key_sum<C>>>(runs, at, folds, at.warp);
  if (!at.exists) return;
  through_run(runs, at, folds, before, [&](index_t step, const key_sum<C>& up_to, const key_sum<C>&) {
    folds[sum_index(runs, at, step)] = up_to;
  });
}

/// The rows of causal AFT-simple, each from the one before. Positions are those of keys; row t stands at t + diagonal.
template <class C, class Access = any_layout>
AFT_KERNEL(scan_threads, 2)
scan_rows_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<key_sum<C>> plan,
                 const AFT_PARAMETER fold_plan rows) {
  const scan_place at = scan_place::of(plan);
  // No row stands in a chunk of keys before the first one.
  if (!at.exists || at.end <= p.diagonal) return;
  key_sum<C> sum;
  key_column<C, Access> keys;
  column_epilogue<C, Access> results;
  if (at.col.exists) {
    sum = plan.partials[at.at];
    keys = key_column<C, Access>::of(p, at.col);
    results = column_epilogue<C, Access>::of(p, at.col);
  }
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t s0 = at.begin; s0 < at.end; s0 += burst<C>) {
    const int last = at.col.exists ? part_of_burst<C>(at.end - s0) : 0;
    const index_t t0 = s0 - p.diagonal;
    const int first = t0 < 0 ? part_of_burst<C>(-t0) : 0;  // the first key with a row
    C key[burst<C>], value[burst<C>], q[burst<C>] = {};
    keys.read(p, s0, 0, last, key, value);
    if (results.reads_q(p)) results.q.template read<Access>(p.q, p.positions, t0, first, last, q);
    results.gate(p, q);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) {
      add_key(key[i], value[i], sum);
      const index_t t = t0 + i;
      if (i < first || s0 + i >= at.end) continue;
      const bool done = proven(sum) || t >= results.rows;
      const std::uint32_t word = ballot(at.col.exists && !done);
      if (thread_index() % warp_size == 0) rows.flags[flag_word(rows, t, at.column_tile)] = word;
      if (!at.col.exists || !done) continue;
      row_result<C> result;
      result.average = average_of(sum);
      result.den = sum.den;
      result.exponent = sum.max;
      results.write(p, t, q[i], result);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
