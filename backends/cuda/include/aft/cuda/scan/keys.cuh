// SPDX-License-Identifier: Apache-2.0
/// @file scan/keys.cuh  Gradients of AFT-simple's keys and values: the scan with time transposed, O(B T d).
///
/// Each key needs the sums of fold/query_sum.cuh over the queries that see it: all of them, or those from it on.
#pragma once

#include "../fold/query_sum.cuh"
#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The finite averages of rows that see a key: all of them lie in [low, high]. Those of padding may be anything, where
/// the caller gave them.
template <class C>
struct average_range {
  C low = number<C>::infinity, high = -number<C>::infinity;

  AFT_DEVICE void add(const average_range& x) {
    low = smaller(low, x.low);
    high = larger(high, x.high);
  }
  /// Rows [t, t + count) of a column; those that see nothing have an average of 0.
  template <class Access>
  AFT_DEVICE void add(const device_call<C>& p, const saved_column<C, Access>& rows, index_t t, int count) {
    C o[burst<C>];
    rows.average.template read<typename saved_steps<Access>::access>(p.average, p.positions, t, 0, count, o);
    bool zeros = false;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) zeros = zeros || o[i] == C(0);
    const std::uint32_t empty = zeros ? rows.empty_rows(p, t, count) : 0u;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i)
      if (i < count && t + i < rows.rows && is_finite(o[i]) && (empty >> i & 1u) == 0) add(average_range{o[i], o[i]});
  }
  /// The average nearest to 0, or 0 where they differ in sign: no o - m is larger than o, so that the gradients of a
  /// row that sees small values keep what its own size allows, and much smaller where all averages are nearly equal.
  AFT_DEVICE C centre() const { return low > high ? C(0) : low > C(0) ? low : high < C(0) ? high : C(0); }
};

template <class C, class Access = any_layout>
AFT_KERNEL(scan_threads, 2)
scan_queries_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<query_sum<C>> plan) {
  const scan_place at = scan_place::of(plan);
  if (!at.exists || !at.col.exists) return;
  query_sum<C> sum;
  average_range<C> averages;
  const index_t begin = at.begin < plan.diagonal ? 0 : at.begin - plan.diagonal;
  const index_t end = at.end - plan.diagonal;
  const auto rows = saved_column<C, Access>::of(p, at.col);
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t t = begin; t < end; t += burst<C>) averages.add(p, rows, t, part_of_burst<C>(end - t));
  sum.centre = averages.centre();
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t t = begin; t < end; t += burst<C>) {
    query_burst<C> q;
    rows.read(p, t, 0, part_of_burst<C>(end - t), q);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i) add_query(q.g[i], q.o[i], q.exponent[i], sum);
  }
  plan.partials[at.at] = sum;
}

/// Replaces each chunk's fold by that of all chunks after it, around its own centre; or, not causal, by that of all.
template <class C>
AFT_KERNEL(merge_threads<query_sum<C>>, 1)
scan_reverse_kernel(const AFT_PARAMETER run_plan runs, query_sum<C>* const folds, const bool causal) {
  const run_place at = run_place::of(runs, block_index());
  const query_sum<C> after = merged_runs<run_warps<query_sum<C>>>(runs, at, folds, causal ? at.warp : runs.warps);
  if (!at.exists) return;
  if (!causal) {
    if (at.warp == 0 && runs.count > 0) folds[at.column] = after;
    return;
  }
  through_run(runs, at, folds, after, [&](index_t step, const query_sum<C>& beyond, const query_sum<C>& own) {
    query_sum<C> kept;
    // A chunk of which no row sees a key has no centre of its own.
    kept.centre = own.max == no_exponent<C> ? beyond.centre : own.centre;
    folds[sum_index(runs, at, step)] = merge(kept, beyond);
  });
}

/// Where the gradients of a column's keys go.
template <class Access>
struct key_results {
  tensor_column dk, dv;

  template <class C>
  AFT_DEVICE static key_results of(const device_call<C>& p, const column& col) {
    key_results out;
    if (p.dk.set) out.dk = tensor_column::of(p.dk, col.b, col.c);
    if (p.dv.set) out.dv = tensor_column::of(p.dv, col.b, col.c);
    return out;
  }

  /// dv and dk of key s, or false where only the exact sums will do.
  template <class C>
  AFT_DEVICE bool finish(const device_call<C>& p, index_t s, C key, C value, const query_sum<C>& sum) const {
    C dv_sum = C(0), dk_sum = C(0);
    if (key != -number<C>::infinity && !add_queries(sum, stage_logit(key), value, dv_sum, dk_sum)) return false;
    if (p.dv.set) dv.template write<Access>(p.dv, p.positions, s, dv_sum);
    if (p.dk.set) dk.template write<Access>(p.dk, p.positions, s, dk_sum);
    return true;
  }
};

/// The keys of `keys`, chunk by chunk: causal, each goes on from the queries after its chunk; otherwise all share a
/// fold.
template <class C, class Access = any_layout>
AFT_KERNEL(scan_threads, 2)
scan_key_rows_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<query_sum<C>> queries,
                     const AFT_PARAMETER scan_plan<query_sum<C>> keys, const AFT_PARAMETER fold_plan rows) {
  const scan_place at = scan_place::of(keys);
  if (!at.exists) return;
  query_sum<C> sum;
  saved_column<C, Access> queries_of_column;
  key_column<C, Access> keys_of_column;
  key_results<Access> results;
  if (at.col.exists) {
    if (p.causal ? at.chunk < queries.chunks : queries.chunks > 0)
      sum = queries.partials[p.causal ? at.at : at.at - at.chunk * keys.cols.count()];
    if (p.causal) queries_of_column = saved_column<C, Access>::of(p, at.col);
    keys_of_column = key_column<C, Access>::of(p, at.col);
    results = key_results<Access>::of(p, at.col);
  }
  // Causal, the last chunk of keys may hold queries that come after every key.
  const index_t end = p.causal ? at.begin + keys.chunk : at.end;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t s0 = at.begin + (end - at.begin - 1) / burst<C> * burst<C>; s0 >= at.begin; s0 -= burst<C>) {
    const int last = at.col.exists ? part_of_burst<C>(max_of(at.end - s0, index_t{0})) : 0;
    C key[burst<C>], value[burst<C>];
    keys_of_column.read(p, s0, 0, last, key, value);
    query_burst<C> q;
    if (p.causal && at.col.exists) {
      const index_t t0 = s0 - p.diagonal;  // the first query that sees the key
      const int first = t0 < 0 ? part_of_burst<C>(-t0) : 0;
      const int end_of_rows = p.Tq - t0 < burst<C> ? static_cast<int>(max_of(p.Tq - t0, index_t{0})) : burst<C>;
      queries_of_column.read(p, t0, first, end_of_rows, q);
    }
    AFT_DEVICE_UNROLL
    for (int i = burst<C> - 1; i >= 0; --i) {
      if (p.causal && at.col.exists) add_query(q.g[i], q.o[i], q.exponent[i], sum);
      if (s0 + i >= at.end) continue;
      const bool done = !at.col.exists || results.finish(p, s0 + i, key[i], value[i], sum);
      const std::uint32_t word = ballot(!done);
      if (thread_index() % warp_size == 0) rows.flags[flag_word(rows, s0 + i, at.column_tile)] = word;
    }
  }
}

/// One key by the definition.
template <class C>
AFT_DEVICE void exact_key(const device_call<C>& p, const column& col, index_t s) {
  const C key = load_key(p, col.b, s, col.c);
  const C value = load<C>(p.v, p.positions, col.b, s, col.c);
  const span queries = queries_of(p, s, s + 1);
  C dv = C(0), dk = C(0);
  for (index_t t0 = queries.lo / tuning::depth * tuning::depth; t0 < queries.hi; t0 += tuning::depth) {
    C part_dv = C(0), part_dk = C(0);
    for (index_t t = max_of(t0, queries.lo); t < t0 + tuning::depth && t < queries.hi; ++t) {
      const saved_row<C> u = load_saved_row(p, col.b, t, col.c);
      if (u.inverse == C(0)) continue;
      const C ag = exact_weight(u, key, C(0)) * (u.g * u.inverse);
      part_dv += ag;
      part_dk = add_difference(ag, value, u.o, part_dk);
    }
    dv += part_dv;
    dk += part_dk;
  }
  if (p.dv.set) store<C>(p.dv, p.positions, col.b, s, col.c, dv);
  if (p.dk.set) store<C>(p.dk, p.positions, col.b, s, col.c, dk);
}

template <class C>
AFT_KERNEL(exact_threads, 2)
exact_keys_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER fold_plan plan) {
  visit_flagged(plan, [&](const flagged_place& at) { exact_key(p, at.col, at.row); });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
