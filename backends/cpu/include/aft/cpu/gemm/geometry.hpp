// SPDX-License-Identifier: Apache-2.0
/// @file gemm/geometry.hpp  Which keys of a panel of rows need a weight of their own, and which are all alike.
#pragma once

#include <aft/core/problem/problem.hpp>
#include <aft/math/integers.hpp>
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The pairs (row, column) of a fold. Forward, rows are queries and columns keys; transposed, the reverse. In a
/// panel's row of columns a middle part is dense (a weight per pair); what lies before and after it is constant (all
/// weights equal the row's outside weight) or hidden.
struct pair_geometry {
  index_t R = 0, K = 0;
  bool bounded = false;  ///< a window limits the dense part; pairs outside are constant or excluded
  index_t before = 0, after = 0;
  int causal = 0;         ///< +1: columns <= row + ahead are seen; -1: columns >= row + ahead
  index_t ahead = 0;      ///< how far the causal edge lies from the diagonal, negative where transposed
  bool constant = false;  ///< pairs outside the window have bias 0 and are folded once
  bool more = false;      ///< rows see more, with bias 0, than the columns: see far_keys
  index_t step = 1;       ///< dense columns begin and end at multiples of it, 1 or, where they go by pairs, 2

  struct span {
    index_t lo = 0, hi = 0;
  };

  /// The dense columns of rows [r0, r1).
  AFT_COMPILE_ONCE span dense(index_t r0, index_t r1) const {
    index_t lo = 0;
    index_t hi = K;
    if (bounded) {
      lo = r0 - before;
      hi = r1 + after;
    }
    // Where causality cuts through the panel each row ends elsewhere, so those keys are dense too.
    const index_t first = r0 + ahead, end = r1 + ahead;
    if (causal > 0) {
      hi = bounded && !constant && hi < end ? hi : end;
      if (constant && lo > first + 1) lo = first + 1;
    } else if (causal < 0) {
      lo = bounded && !constant && lo > first ? lo : first;
      if (constant && hi < end - 1) hi = end - 1;
    }
    lo = lo < 0 ? 0 : min_of(lo, K) & -step;
    hi = max_of(min_of(hi, K), lo);
    return {lo, min_of((hi + step - 1) & -step, K)};
  }
  bool has_prefix(const span& s) const { return constant && causal >= 0 && (s.lo > 0 || more); }
  bool has_suffix(const span& s) const { return constant && causal <= 0 && s.hi < K; }
};

/// The rows of a geometry cut into panels of at most `most` rows. Heights differ by one, so that no short panel is left
/// at the end: it would cost nearly as much as a full one. Beside a window the cuts decide how constant blocks are
/// summed; there they lie at multiples of `most`, so that a causal row's bits do not depend on how many rows follow it.
struct row_panels {
  index_t rows = 0, count = 0, height = 0, taller = 0;

  row_panels() = default;
  row_panels(const pair_geometry& g, index_t most)
      : rows(g.R),
        count(ceil_div(g.R, most)),
        height(g.bounded || count == 0 ? most : g.R / count),
        taller(g.bounded || count == 0 ? 0 : g.R % count) {}

  index_t begin(index_t panel) const {
    const index_t at = panel * height + min_of(panel, taller);
    return at < rows ? at : rows;
  }
  index_t end(index_t panel) const { return begin(panel + 1); }
  /// The panel that row t lies in.
  index_t of(index_t t) const {
    const index_t tall = taller * (height + 1);
    return t < tall ? t / (height + 1) : taller + (t - tall) / height;
  }
  /// The dense columns of a panel.
  pair_geometry::span dense(const pair_geometry& g, index_t panel) const { return g.dense(begin(panel), end(panel)); }
  /// The most dense columns of any panel.
  index_t widest(const pair_geometry& g) const {
    index_t most = 0;
    for (index_t panel = 0; panel < count; ++panel) {
      const pair_geometry::span s = dense(g, panel);
      if (s.hi - s.lo > most) most = s.hi - s.lo;
    }
    return most;
  }
};

/// Which ends of a tile are band edges: band edge by band edge, rows begin with the steps, one a row, that they are the
/// first to need, or end with the last ones. What lies beside is 0 or left to the caller.
struct tile_edges {
  bool begin = false, end = false;
};

/// The dense columns of each band edge of a panel of `rows` rows.
template <class C>
struct band_edge {
  pair_geometry::span span;  ///< of the panel
  tile_edges edges;
  index_t rows;

  static index_t edge_of(index_t row) {
    index_t edge_group = 0;
    while (tuning<C>::edge_group(edge_group + 1) <= row) ++edge_group;
    return edge_group;
  }
  /// The steps at the end that not all rows take.
  index_t end_steps() const { return rows - tuning<C>::edge_group(1); }
  index_t lo(index_t edge_group) const { return edges.begin ? span.lo + tuning<C>::edge_group(edge_group) : span.lo; }
  index_t hi(index_t edge_group) const {
    const index_t end = tuning<C>::edge_group(edge_group + 1);
    return edges.end && end < rows ? span.hi - (rows - end) : span.hi;
  }
};

inline pair_geometry query_geometry(const problem& p) {
  pair_geometry g;
  g.R = p.Tq;
  g.K = p.Tk;
  g.causal = p.causal ? 1 : 0;
  g.ahead = p.first_query;
  // A mask per query makes every pair its own case; the window then only decides the weights.
  g.constant = p.win.bounded && !p.excluded && !p.pair_mask();
  g.more = p.afar.joins_rows();
  g.bounded = p.win.bounded && (p.excluded || g.constant);
  g.before = p.win.before;
  g.after = p.win.after;
  return g;
}

inline pair_geometry key_geometry(const problem& p) {
  pair_geometry g = query_geometry(p);
  g.R = p.Tk;
  g.K = p.Tq;
  g.more = false;
  g.causal = -g.causal;
  g.ahead = -p.first_query;
  g.before = p.win.after;
  g.after = p.win.before;
  return g;
}

}  // namespace aft::inline AFT_ISA::cpu_impl
