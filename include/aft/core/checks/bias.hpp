// SPDX-License-Identifier: Apache-2.0
/// @file checks/bias.hpp  Shapes of a bias or filter against the call, and its form in the problem.
#pragma once

#include "../problem/sequences.hpp"
#include "sparse_filter.hpp"
#include "votes.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// Rows of w, u and v are the last axis but one, whatever comes before: (batch, heads) are optional.
inline std::size_t row_axis(const any_view& v) {
  return v.rank() - 2;
}

inline void add_bias_queries(votes& ballot, const bias_arguments& b) {
  if (b.kind == bias_kind::dense || b.kind == bias_kind::banded) ballot.add(b.w, row_axis(b.w.view));
  if (b.kind == bias_kind::factorized) ballot.add(b.u, row_axis(b.u.view));
}

inline void add_bias_keys(votes& ballot, const bias_arguments& b) {
  if (b.kind == bias_kind::dense) ballot.add(b.w, b.w.view.rank() - 1);
  if (b.kind == bias_kind::factorized) ballot.add(b.v, row_axis(b.v.view));
}

/// H of a tensor with an optional head axis before its rows; 1 without one. A bias needs at least one head.
[[gnu::cold]] inline index_t heads_of(const call& c, const argument& a, index_t d) {
  const any_view& v = a.view;
  const bool filter = &a == &c.bias.r || &a == &c.dbias.r;
  if (!filter && v.rank() == 2) return 1;
  const std::size_t axis = filter ? 0 : v.rank() - 3;
  if (v.extent(axis) == 0) fail(c.op, a, axis_text(axis, "H") << " to divide d = " << d, "0");
  require_divides(c.op, a, axis, "H", d);
  return v.extent(axis);
}

/// A head axis of extent 1 is broadcast, with stride 0, when the bias as a whole has more heads.
inline matrix to_matrix(const any_view& v) {
  matrix m;
  m.data = static_cast<std::byte*>(v.data());
  m.type = v.type();
  m.set = true;
  m.sr = v.stride(row_axis(v));
  m.sc = v.stride(v.rank() - 1);
  if (v.rank() >= 3 && v.extent(v.rank() - 3) > 1) m.sh = v.stride(v.rank() - 3);
  if (v.rank() == 4 && v.extent(0) > 1) m.sb = v.stride(0);
  return m;
}

[[gnu::cold]] inline void set_pairs(const call& c, const argument& w, const problem& p, bias_ref& ref) {
  ref.heads = heads_of(c, w, p.d);
  if (w.view.rank() == 4) {
    ref.batch = w.view.extent(0);
    const index_t batch = p.packed != nullptr ? p.packed->count : p.B;
    if (ref.batch != 1 && ref.batch != batch) {
      fail(c.op, w, axis_text(0, "B") << " to be 1 or " << batch << (p.packed != nullptr ? ", the sequences" : ""),
           ref.batch);
    }
  }
  if (ref.kind == bias_kind::banded) {
    require_extent(c.op, w, w.view.rank() - 1, "width", c.win.before + c.win.after + 1);
  }
  ref.w = to_matrix(w.view);
}

[[gnu::cold]] inline void set_factors(const call& c, const bias_arguments& b, const problem& p, bias_ref& ref) {
  ref.u_heads = heads_of(c, b.u, p.d);
  ref.v_heads = heads_of(c, b.v, p.d);
  if (ref.u_heads != ref.v_heads && ref.u_heads != 1 && ref.v_heads != 1) {
    fail(c.op, b.v, axis_text(0, "H") << " to be 1 or " << ref.u_heads << " as in '" << b.u.name << "'", ref.v_heads);
  }
  ref.heads = ref.u_heads > ref.v_heads ? ref.u_heads : ref.v_heads;
  ref.rank = b.u.view.extent(b.u.view.rank() - 1);
  if (b.v.view.extent(b.v.view.rank() - 1) != ref.rank) {
    fail(c.op, b.v, axis_text(b.v.view.rank() - 1, "n") << " to be " << ref.rank << " as in '" << b.u.name << "'",
         b.v.view.extent(b.v.view.rank() - 1));
  }
  ref.u = to_matrix(b.u.view);
  ref.v = to_matrix(b.v.view);
}

inline void set_taps(const call& c, const argument& r, const problem& p, bias_ref& ref) {
  ref.heads = heads_of(c, r, p.d);
  ref.r = static_cast<std::byte*>(r.view.data());
  ref.r_type = r.view.type();
  ref.r_set = true;
  ref.r_sh = r.view.stride(0);
  const std::size_t axes = r.view.rank() - 1;
  for (std::size_t i = 0; i < axes; ++i) ref.r_sj[3 - axes + i] = r.view.stride(1 + i);
}

/// The gradient of a sparse filter's values: an axis of extent 1 is the sum over it, which a stride of 0 says.
inline void set_value_gradient(const argument& r, bias_ref& ref) {
  ref.r = static_cast<std::byte*>(r.view.data());
  ref.r_type = r.view.type();
  ref.r_set = true;
  // Without taps there is nothing to be summed, whatever the stride.
  const auto step = [&](std::size_t axis) {
    const index_t extent = r.view.extent(axis);
    return extent < 2 ? 1 - extent : r.view.stride(axis);
  };
  ref.r_sh = step(0);
  ref.r_sj[2] = step(1);
}

/// Of a gradient, heads and batch are those of the bias.
[[gnu::cold]] inline void set_generated(const call& c, const bias_arguments& b, const problem& p, bias_ref& ref) {
  const index_t heads = c.bias.heads;
  if (heads < 1 || p.d % heads != 0) fail(c.op, {"H", {}, " of bias"}, text("a divisor of d = ") << p.d, heads);
  ref.heads = heads;
  ref.batch = !c.bias.batched ? 1 : (p.packed != nullptr ? p.packed->count : p.B);
  ref.rows = &b.rows;
  ref.rows_first = c.opt->first_query;
}

/// A bias, or its gradient, whose rows and columns have been settled with the other tensors.
[[gnu::cold]] inline bias_ref to_bias_ref(const call& c, const bias_arguments& b, const problem& p) {
  bias_ref ref;
  ref.kind = b.kind;
  switch (b.kind) {
    case bias_kind::none: break;
    case bias_kind::dense:
    case bias_kind::banded: set_pairs(c, b.w, p, ref); break;
    case bias_kind::factorized: set_factors(c, b, p, ref); break;
    case bias_kind::filter: set_taps(c, b.r, p, ref); break;
    case bias_kind::generated: set_generated(c, b, p, ref); break;
    case bias_kind::sparse:
      set_sparse(c, p, ref);
      if (&b == &c.dbias) set_value_gradient(b.r, ref);
      break;
  }
  return ref;
}

/// "Same" placement puts the smaller half of an even filter before the query, as the deep-learning frameworks do;
/// a causal filter ends at the query.
[[gnu::cold]] inline void set_filter_geometry(const call& c, problem& p) {
  if (c.bias.kind != bias_kind::filter) return;
  const any_view& r = c.bias.r.view;
  const std::size_t axes = r.rank() - 1;
  if (c.opt->causal && axes != 1) {
    fail(c.op, {"causal"}, "false on a grid of more than one axis", text("true with ") << axes << " axes");
  }
  for (std::size_t i = 0; i < axes; ++i) {
    const index_t taps = r.extent(1 + i);
    p.taps[3 - axes + i] = taps;
    p.left[3 - axes + i] = c.opt->causal ? taps - 1 : (taps - 1) / 2;
  }
  place_filter(p, c.opt->first_query);
}

/// Whether an axis of a bias says the same at every index: over batch elements or heads its gradient may then be one
/// sum.
inline bool is_broadcast(const any_view& v, std::size_t axis) {
  return v.extent(axis) > 1 && v.stride(axis) == 0;
}

/// A bias whose gradient is wanted as one sum over the batch or over the heads, by an extent of 1, is taken for one
/// without that axis. `axes` of them come first: those before the rows, or the head axis of a filter.
[[gnu::cold]] inline any_view as_summed(const any_view& of, const argument& gradient, std::size_t axes) {
  if (!gradient.given() || gradient.view.rank() != of.rank()) return of;
  any_view summed = of;
  for (std::size_t i = 0; i < axes; ++i) {
    if (is_broadcast(of, i) && gradient.view.extent(i) == 1) summed = summed.first_of(i);
  }
  return summed;
}

[[gnu::cold]] inline void sum_broadcast_axes(bias_arguments& b, const bias_arguments& gradient) {
  const auto sum = [](argument& of, const argument& by, bool filter) {
    if (of.given()) of.view = as_summed(of.view, by, filter ? 1 : row_axis(of.view));
  };
  sum(b.w, gradient.w, false);
  sum(b.u, gradient.u, false);
  sum(b.v, gradient.v, false);
  sum(b.r, gradient.r, true);
}

[[gnu::cold]] inline void require_same_extents(const call& c, const argument& gradient, const argument& of) {
  if (!gradient.given()) return;
  if (gradient.view.rank() != of.view.rank()) {
    fail(c.op, gradient, text("rank ") << of.view.rank() << " as '" << of.name << "'",
         static_cast<index_t>(gradient.view.rank()));
  }
  for (std::size_t i = 0; i < of.view.rank(); ++i) {
    if (gradient.view.extent(i) == of.view.extent(i)) continue;
    fail(c.op, gradient, text("extent ") << i << " to be " << of.view.extent(i) << " as in '" << of.name << "'",
         gradient.view.extent(i));
  }
}

[[gnu::cold]] inline void require_bias_gradient(const call& c) {
  require_same_extents(c, c.dbias.w, c.bias.w);
  require_same_extents(c, c.dbias.u, c.bias.u);
  require_same_extents(c, c.dbias.v, c.bias.v);
  argument filter = c.sparse ? c.sparse->values : c.bias.r;
  // The taps of a sparse filter keep their heads apart, so that its values do too, and only the gradient is summed.
  if (c.sparse) filter.view = as_summed(filter.view, c.dbias.r, 2);
  require_same_extents(c, c.dbias.r, filter);
  const index_t parts = c.dbias.rows.parts;
  if (parts < 1 || parts > 64) fail(c.op, {"dbias.parts"}, "1 to 64", parts);
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
