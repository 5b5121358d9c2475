// SPDX-License-Identifier: Apache-2.0
/// @file problem/sequences.hpp  Where queries stand among keys, and the sequences of a packed call as problems.
#pragma once

#include "problem.hpp"

namespace aft {
inline namespace AFT_ISA {

/// Keys t + first - before <= s <= t + first + after, as a backend counts: from t. Rows of a banded bias begin at the
/// window's edge, so there it stays where it is.
inline void place_window(problem& p, const band& given, index_t first, bool uncut) {
  p.win = {true, given.before - first, given.after + first};
  if (uncut) return;
  // No key is further than Tq before a query or Tk after one, so a larger reach means the same; the cut keeps t + after
  // far from overflow.
  const auto cut = [](index_t reach, index_t low, index_t high) {
    return reach < low ? low : (reach > high ? high : reach);
  };
  p.win.before = cut(p.win.before, -p.Tk, p.Tq);
  p.win.after = cut(p.win.after, -p.Tq, p.Tk);
}

inline void place_diagonal(problem& p, bool causal, index_t first) {
  // From Tk - 1 on the first row sees all keys, and every other one.
  p.causal = causal && (first == 0 || first < p.Tk - 1);
  p.first_query = first < p.Tk ? first : p.Tk;
}

/// `left` of the last axis is that of a query at position 0.
inline void place_filter(problem& p, index_t first) {
  // Key t + first + j - left: the backend counts from t. Beyond the last key's taps a query reads none, wherever it
  // stands.
  const index_t furthest = p.Tk + p.taps[2];
  p.first_query = first < furthest ? first : furthest;
  p.left[2] -= p.first_query;
}

namespace sequences {

inline void take_rows(field& f, index_t first) {
  if (f.set) f.data += first * f.sx[2] * size_of(f.type);
}
inline void take_rows(matrix& m, index_t first) {
  if (m.set) m.data += first * m.sr * size_of(m.type);
}
inline void take_batch(bias_ref& b, index_t n) {
  if (b.batch > 1 && b.w.set) b.w.data += n * b.w.sb * size_of(b.w.type);
  b.rows_batch = b.batch > 1 ? n : 0;
  b.batch = 1;
}

/// Rows [r0, r1) of sequence n, or to its end where r1 is -1, as a call of their own with all of the sequence's keys.
inline void take(problem& p, index_t n, index_t r0, index_t r1) {
  const packed_sequences& all = *p.packed;
  const index_t t0 = all.queries.at(n), s0 = all.keys.at(n);
  p.packed = nullptr;
  p.all_queries = p.Tq;
  p.all_keys = p.Tk;
  p.Tq = (r1 < 0 ? all.queries.at(n + 1) - t0 : r1) - r0;
  p.Tk = all.keys.at(n + 1) - s0;
  p.grid = {1, 1, p.Tq};
  for (field* f : {&p.q, &p.y, &p.lse, &p.average}) take_rows(*f, t0 + r0);
  for (field* f : {&p.k, &p.v}) take_rows(*f, s0);
  take_batch(p.bias, n);
  take_rows(p.bias.kind == bias_kind::factorized ? p.bias.u : p.bias.w, r0);
  const index_t first = all.first_query + r0;
  p.bias.rows_first = first;
  if (all.win.bounded) place_window(p, all.win, first, p.bias.kind == bias_kind::banded);
  place_diagonal(p, all.causal, first);
  p.bias.taps.first_query = first;
  if (p.bias.kind != bias_kind::filter) return;
  p.left[2] = all.causal ? p.taps[2] - 1 : (p.taps[2] - 1) / 2;
  place_filter(p, first);
}
inline void take(backward_problem& p, index_t n, index_t r0, index_t r1) {
  const index_t t0 = p.packed->queries.at(n), s0 = p.packed->keys.at(n);
  for (field* f : {&p.dy, &p.dq}) take_rows(*f, t0 + r0);
  for (field* f : {&p.dk, &p.dv}) take_rows(*f, s0);
  // Rows are dealt as if they were counted through all sequences.
  p.dbias.rows_before = p.dbias.batch > 1 ? p.dbias.heads * t0 : 0;
  p.dbias.rows_first = p.packed->first_query + r0;
  take_batch(p.dbias, n);
  take_rows(p.dbias.kind == bias_kind::factorized ? p.dbias.u : p.dbias.w, r0);
  take(static_cast<problem&>(p), n, r0, r1);
}

}  // namespace sequences

/// Sequence n of a packed call as the problem that a call on it alone is, bit by bit; of its queries only rows
/// [r0, r1) where they are given.
template <class Problem>
Problem sequence_of(const Problem& p, index_t n, index_t r0 = 0, index_t r1 = -1) {
  Problem one = p;
  sequences::take(one, n, r0, r1);
  return one;
}

}  // namespace AFT_ISA
}  // namespace aft
