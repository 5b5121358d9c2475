// SPDX-License-Identifier: Apache-2.0
/// @file pair_geometry.hpp  Which keys of a panel of rows need a weight of their own, and which are all alike.
#pragma once

#include <aft/core/problem.hpp>

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// The pairs (row, column) of a fold. Forward, rows are queries and columns keys; transposed, the reverse. In a
/// panel's row of columns a middle part is dense (a weight per pair); what lies before and after it is constant (all
/// weights equal the row's outside weight) or hidden.
struct pair_geometry {
  index_t R = 0, K = 0;
  bool bounded = false;  ///< a window limits the dense part; pairs outside are constant or excluded
  index_t before = 0, after = 0;
  int causal = 0;         ///< +1: columns <= row are seen; -1: columns >= row
  bool constant = false;  ///< pairs outside the window have bias 0 and are folded once

  struct span {
    index_t lo = 0, hi = 0;
  };

  /// The dense columns of rows [r0, r1).
  span dense(index_t r0, index_t r1) const {
    index_t lo = 0;
    index_t hi = K;
    if (bounded) {
      lo = r0 - before;
      hi = r1 + after;
    }
    // Where causality cuts through the panel each row ends elsewhere, so that stretch is dense too.
    if (causal > 0) {
      hi = bounded && !constant && hi < r1 ? hi : r1;
      if (constant && lo > r0 + 1) lo = r0 + 1;
    } else if (causal < 0) {
      lo = bounded && !constant && lo > r0 ? lo : r0;
      if (constant && hi < r1 - 1) hi = r1 - 1;
    }
    lo = lo < 0 ? 0 : (lo > K ? K : lo);
    hi = hi > K ? K : hi;
    return {lo, hi < lo ? lo : hi};
  }
  bool has_prefix(const span& s) const { return constant && causal >= 0 && s.lo > 0; }
  bool has_suffix(const span& s) const { return constant && causal <= 0 && s.hi < K; }

  /// The most dense columns of any panel of `rows` rows.
  index_t widest(index_t rows) const {
    index_t most = 0;
    for (index_t r0 = 0; r0 < R; r0 += rows) {
      const span s = dense(r0, r0 + rows < R ? r0 + rows : R);
      if (s.hi - s.lo > most) most = s.hi - s.lo;
    }
    return most;
  }
};

inline pair_geometry query_geometry(const problem& p) {
  pair_geometry g;
  g.R = p.Tq;
  g.K = p.Tk;
  g.causal = p.causal ? 1 : 0;
  // A mask per query makes every pair its own case; the window then only decides the weights.
  g.constant = p.win.bounded && !p.excluded && !p.pair_mask();
  g.bounded = p.win.bounded && (p.excluded || g.constant);
  g.before = p.win.before;
  g.after = p.win.after;
  return g;
}

inline pair_geometry key_geometry(const problem& p) {
  pair_geometry g = query_geometry(p);
  g.R = p.Tk;
  g.K = p.Tq;
  g.causal = -g.causal;
  g.before = p.win.after;
  g.after = p.win.before;
  return g;
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
