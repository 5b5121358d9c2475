// SPDX-License-Identifier: Apache-2.0
/// @file sparse/keys.cuh  Gradients of keys and values under a sparse filter: the sums over all queries that AFT-simple
/// has (fold/query_sum.cuh), and e^w - 1 times the queries that read a key through a tap.
///
/// Where w < 0 a query is taken out of a sum that it counts in with e^(k - lse). Of a pair that the row sees that is
/// at most 1; a key that a tap hides from a row may have more there, and all that lies beside it in the sum is lost.
/// Such keys are flagged and summed by definition.
#pragma once

#include "../scan/keys.cuh"
#include "rows.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Adds row t to the queries that a key sees from it on.
template <class C>
AFT_DEVICE void add_row(const device_call<C>& p, const column& col, index_t t, query_sum<C>& sum) {
  const saved_row<C> u = load_saved_row(p, col.b, t, col.c);
  if (u.inverse == C(0)) return;
  const bool within = u.base_hi == C(0) && u.base_lo == C(0);
  add_query(within ? u.g * u.inverse : number<C>::nan, u.o, u.exponent, sum);
}

/// Adds to a key's gradients what a tap changes, or without the others gives; false where only the exact sums will do.
template <class C>
AFT_DEVICE bool add_tapping_row(const device_call<C>& p, const column& col, index_t t, const split_exp<C>& key, C value,
                                const device_tap<C>& tap, C& dv, C& dk) {
  const split_exp<C> weight = p.excluded ? tap.weight : tap.gain;
  if (weight.mantissa == C(0)) return true;
  const saved_row<C> u = load_saved_row(p, col.b, t, col.c);
  if (u.inverse == C(0)) return true;
  const C untapped = key.exponent - u.exponent;
  const C e = untapped + weight.exponent;
  // Rounding may carry a visible weight past 1; NaN is no number either way.
  const bool bounded = e <= C(2) && (p.excluded || !(weight.mantissa < C(0)) || untapped <= C(0));
  if (!bounded || u.base_hi != C(0) || u.base_lo != C(0)) return false;
  const C ag = key.mantissa * weight.mantissa * pow2<C>(e) * (u.g * u.inverse);
  dv += ag;
  dk = add_difference(ag, value, u.o, dk);
  return true;
}

/// dv and dk of key s, or false where only the exact sums will do.
template <class C>
AFT_DEVICE bool sum_tapped_key(const device_call<C>& p, const tap_table<C>& table, const column& col, index_t s,
                               sparse_start start, const query_sum<C>& all) {
  const C key = load_key(p, col.b, s, col.c);
  C dv = C(0), dk = C(0);
  if (key != -number<C>::infinity) {
    if (start == sparse_start::nothing && !p.excluded) return false;
    const C value = load<C>(p.v, p.positions, col.b, s, col.c);
    const split_exp<C> own = stage_logit(key);
    const bool summed = start == sparse_start::nothing || add_queries(all, own, value, dv, dk);
    const index_t rows = length_of(p.query_lengths, col.b, p.Tq);
    index_t seen_by = rows - (p.causal ? clamp_to(s - p.diagonal, rows) : 0);
    bool stands = summed;
    const device_tap<C>* const taps = table.of(quotient(col.c, quotient(p.d, table.heads)));
    const point place = point_of(table.keys, s);
    AFT_DEVICE_UNROLL_BY(1)
    for (index_t i = 0; i < table.count; ++i) {
      const index_t t = tapping_row(table, taps[i], place, s);
      if (t < 0 || t >= rows || (pair_mask(p) && mask_hides(p, col.b, t, s))) continue;
      if (taps[i].weight.mantissa == C(0)) --seen_by;
      stands = stands && add_tapping_row(p, col, t, own, value, taps[i], dv, dk);
    }
    // Where taps of -inf hide the key from every row nothing is added, and what is left are roundings.
    if (seen_by == 0) dv = dk = C(0);
    if (seen_by != 0 && !(stands && is_finite(dv) && is_finite(dk))) return false;
  }
  if (p.dv.set) store<C>(p.dv, p.positions, col.b, s, col.c, dv);
  if (p.dk.set) store<C>(p.dk, p.positions, col.b, s, col.c, dk);
  return true;
}

/// The keys of `keys`, chunk by chunk: with a prefix for rows, each goes on from the queries after its chunk; otherwise
/// all share a fold.
template <class C>
AFT_KERNEL(scan_threads, 2)
sparse_keys_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER scan_plan<query_sum<C>> queries,
                   const AFT_PARAMETER scan_plan<query_sum<C>> keys, const sparse_start start,
                   const AFT_PARAMETER tap_table<C> table, const AFT_PARAMETER fold_plan rows) {
  const scan_place at = scan_place::of(keys);
  if (!at.exists) return;
  const bool carries = start == sparse_start::prefix;
  query_sum<C> sum;
  if (at.col.exists && start != sparse_start::nothing && (carries ? at.chunk < queries.chunks : queries.chunks > 0))
    sum = queries.partials[carries ? at.at : at.at - at.chunk * keys.cols.count()];
  // The last chunk of keys may hold queries that come after every key.
  const index_t end = carries ? at.begin + keys.chunk : at.end;
  AFT_DEVICE_UNROLL_BY(1)
  for (index_t s = end - 1; s >= at.begin; --s) {
    const index_t t = s - queries.diagonal;  // the first query that sees the key
    if (carries && at.col.exists && t >= 0 && t < p.Tq) add_row(p, at.col, t, sum);
    if (s >= at.end) continue;
    const bool done = !at.col.exists || sum_tapped_key(p, table, at.col, s, start, sum);
    const std::uint32_t word = ballot(!done);
    if (thread_index() % warp_size == 0) rows.flags[flag_word(rows, s, at.column_tile)] = word;
  }
}

/// The queries that see one key, in their order, with the weights of their pairs.
template <class C>
struct sparse_key_pairs {
  const device_call<C>& p;
  const tap_table<C>& table;
  index_t b, h, s;

  template <class Visit>
  AFT_DEVICE void each(const Visit& visit) const {
    const device_tap<C>* const taps = table.of(h);
    const point at = point_of(table.keys, s);
    index_t i = table.count - 1;  // the later a tap's key, the earlier the row that reads this one through it
    const auto see = [&](index_t t, C w) {
      if (w != -number<C>::infinity && !(pair_mask(p) && mask_hides(p, b, t, s))) visit(t, w);
    };
    if (p.excluded) {
      for (; i >= 0; --i)
        if (const index_t t = tapping_row(table, taps[i], at, s); t >= 0) see(t, taps[i].value);
      return;
    }
    const span queries = queries_of(p, s, s + 1);
    for (index_t t = queries.lo; t < queries.hi; ++t) {
      C w = C(0);
      for (index_t reading = 0; i >= 0 && (reading = tapping_row(table, taps[i], at, s)) <= t; --i)
        if (reading == t) w = taps[i].value;
      see(t, w);
    }
  }
};

template <class C>
AFT_KERNEL(exact_threads, 2)
sparse_exact_keys_kernel(const AFT_PARAMETER device_call<C> p, const AFT_PARAMETER tap_table<C> table,
                         const AFT_PARAMETER fold_plan plan) {
  visit_flagged(plan, [&](const flagged_place& at) {
    const index_t b = at.col.b, c = at.col.c, s = at.row;
    const C key = load_key(p, b, s, c);
    const C value = load<C>(p.v, p.positions, b, s, c);
    C dv = C(0), dk = C(0), part_dv = C(0), part_dk = C(0);
    index_t end = 0;  // of the part
    sparse_key_pairs<C>{p, table, b, c / (p.d / table.heads), s}.each([&](index_t t, C w) {
      const saved_row<C> u = load_saved_row(p, b, t, c);
      if (u.inverse == C(0)) return;
      if (t >= end) {
        dv += part_dv;
        dk += part_dk;
        part_dv = part_dk = C(0);
        end = (t / tuning::depth + 1) * tuning::depth;
      }
      const C ag = pair_weight(u, key, stage_logit(w), w) * (u.g * u.inverse);
      part_dv += ag;
      part_dk = add_difference(ag, value, u.o, part_dk);
    });
    if (p.dv.set) store<C>(p.dv, p.positions, b, s, c, dv + part_dv);
    if (p.dk.set) store<C>(p.dk, p.positions, b, s, c, dk + part_dk);
  });
}

}  // namespace aft::inline AFT_ISA::cuda_impl
