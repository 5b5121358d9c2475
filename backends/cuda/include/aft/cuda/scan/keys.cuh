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
  AFT_DEVICE void add(const device_call<C>& p, const column& col, index_t t) {
    const C o = load<C>(p.average, p.positions, col.b, t, col.c);
    if (!is_finite(o) || is_padding(p, col.b, t)) return;
    if (o == C(0)) {
      saved_row<C> u;
      load_row_weights(p, col.b, t, col.c, u);
      if (u.inverse == C(0)) return;
    }
    add({o, o});
  }
  /// The average nearest to 0, or 0 where they differ in sign: no o - m is larger than o, so that the gradients of a
  /// row that sees small values keep what its own size allows, and much smaller where all averages are nearly equal.
  AFT_DEVICE C centre() const { return low > high ? C(0) : low > C(0) ? low : high < C(0) ? high : C(0); }
};

template <class C>
AFT_KERNEL(scan_threads, (sizeof(C) == 8 ? 3 : 4))
scan_queries_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<query_sum<C>> plan) {
  const scan_place at = scan_place::of(plan);
  if (!at.exists || !at.col.exists) return;
  query_sum<C> sum;
  average_range<C> averages;
  const index_t begin = at.begin < plan.diagonal ? 0 : at.begin - plan.diagonal;
  const index_t end = at.end - plan.diagonal;
  for (index_t t = begin; t < end; ++t) averages.add(p, at.col, t);
  sum.centre = averages.centre();
  for (index_t t = begin; t < end; ++t) add_query(p, at.col, t, sum);
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

/// dv and dk of one key, or false where only the exact sums will do.
template <class C>
AFT_DEVICE bool key_epilogue(const device_call<C>& p, const column& col, index_t s, const query_sum<C>& sum) {
  const C key = load_key(p, col.b, s, col.c);
  C dv = C(0), dk = C(0);
  if (key != -number<C>::infinity) {
    const C value = load<C>(p.v, p.positions, col.b, s, col.c);
    if (!add_queries(sum, stage_logit(key), value, dv, dk)) return false;
  }
  if (p.dv.set) store<C>(p.dv, p.positions, col.b, s, col.c, dv);
  if (p.dk.set) store<C>(p.dk, p.positions, col.b, s, col.c, dk);
  return true;
}

/// The keys of `keys`, chunk by chunk: causal, each goes on from the queries after its chunk; otherwise all share a
/// fold.
template <class C>
AFT_KERNEL(scan_threads, 2)
scan_key_rows_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<query_sum<C>> queries,
                     const AFT_PARAMETER scan_plan<query_sum<C>> keys, const AFT_PARAMETER fold_plan rows) {
  const scan_place at = scan_place::of(keys);
  if (!at.exists) return;
  query_sum<C> sum;
  const bool summed = p.causal ? at.chunk < queries.chunks : queries.chunks > 0;
  if (at.col.exists && summed) sum = queries.partials[p.causal ? at.at : at.at - at.chunk * keys.cols.count()];
  // Causal, the last chunk of keys may hold queries that come after every key.
  for (index_t s = p.causal ? at.begin + keys.chunk : at.end; s-- > at.begin;) {
    const index_t t = s - p.diagonal;  // the first query that sees the key
    if (at.col.exists && p.causal && t >= 0 && t < p.Tq) add_query(p, at.col, t, sum);
    if (s >= at.end) continue;
    const bool done = !at.col.exists || key_epilogue(p, at.col, s, sum);
    const std::uint32_t word = ballot(!done);
    if (thread_index() % warp_size == 0) rows.flags[flag_word(rows, s, at.column_tile)] = word;
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
