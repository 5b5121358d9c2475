// SPDX-License-Identifier: Apache-2.0
/// @file scan/split.hpp  A causal call whose rows stand after the first keys, cut where the first row stands.
///
/// Keys before the first row are seen by all rows, as in a call that is not causal; row t sees of the keys after them
/// those up to its own, as in a causal call whose first row and key are the same. Their folds are joined.
#pragma once

#include <aft/core/problem/problem.hpp>

namespace aft::inline AFT_ISA::cpu_impl::scan {

inline void advance_keys(field& f, index_t n) {
  if (f.set) f.data += n * f.sx[2] * size_of(f.type);
}

/// The call on the first n keys, which all rows see.
template <class Problem>
inline Problem earlier_keys(const Problem& whole, index_t n) {
  Problem p = whole;
  p.Tk = n;
  p.causal = false;
  p.first_query = 0;
  return p;
}

/// The call on the keys from n on.
inline void skip_keys(problem& p, index_t n) {
  advance_keys(p.k, n);
  advance_keys(p.v, n);
  p.Tk -= n;
  p.lengths.less += n;
  if (p.mask != nullptr) p.mask += n * p.mask_ss;
  p.first_query -= n;
}
inline void skip_keys(backward_problem& p, index_t n) {
  advance_keys(p.dk, n);
  advance_keys(p.dv, n);
  skip_keys(static_cast<problem&>(p), n);
}
template <class Problem>
inline Problem later_keys(const Problem& whole, index_t n) {
  Problem p = whole;
  skip_keys(p, n);
  return p;
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
