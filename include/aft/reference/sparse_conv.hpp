// SPDX-License-Identifier: Apache-2.0
/// @file sparse_conv.hpp  AFT-conv with a filter that is written tap by tap: w[t,s] = values[h, i] where s - t is tap i
/// of head h, 0 elsewhere (AFT Eq. 6, and the indexing below Eq. 10).
#pragma once

#include <aft/math/sparse_filter.hpp>

#include <algorithm>

#include "conv.hpp"

namespace aft::reference {

/// The taps (H, m, axes) on a grid.
struct tap_geometry {
  std::vector<index_t> grid, taps;
  index_t heads = 0, count = 0;
  index_t first_query = 0;  ///< on a sequence query t stands there + t

  /// Which tap of head h leads from query t to key s, -1 if none does. Positions are row-major.
  index_t tap(index_t h, index_t t, index_t s) const {
    std::vector<index_t> offset(grid.size());
    if (grid.size() == 1) {
      offset[0] = s - (first_query + t);
    } else {
      for (std::size_t axis = grid.size(); axis-- > 0; t /= grid[axis], s /= grid[axis])
        offset[axis] = s % grid[axis] - t % grid[axis];
    }
    for (index_t i = 0; i < count; ++i) {
      const auto* const from = taps.data() + (h * count + i) * static_cast<index_t>(grid.size());
      if (std::equal(offset.begin(), offset.end(), from)) return i;
    }
    return -1;
  }
};

template <class V, class Taps, class Values>
tap_geometry geometry_of_taps(const V& v, const sparse_filter<Taps, Values>& filter, const options& opt) {
  tap_geometry geo;
  for (std::size_t i = V::rank() == 2 ? 0 : 1; i + 1 < V::rank(); ++i) geo.grid.push_back(v.extent(i));
  geo.taps = flatten<index_t>(filter.taps);
  geo.heads = filter.values.extent(0);
  geo.count = filter.values.extent(1);
  geo.first_query = opt.first_query;
  return geo;
}

/// Heads have taps of their own, so that what is outside the filter is a matter of w: excluded pairs have -inf.
template <class Real, class Values>
pairs<Real> tapped(const Values& values, const tap_geometry& geo, const options& opt) {
  pairs<Real> p;
  p.H = geo.heads;
  p.inside = everywhere;
  const Real elsewhere = opt.outside == outside::excluded ? -std::numeric_limits<Real>::infinity() : Real{0};
  p.w = [geo, elsewhere, w = flatten<Real>(values)](index_t, index_t h, index_t t, index_t s) {
    const index_t i = geo.tap(h, t, s);
    return i < 0 ? elsewhere : w[static_cast<std::size_t>(h * geo.count + i)];
  };
  set_options(opt, p);
  return p;
}

template <class Real, class Q, class K, class V, class Taps, class Values>
forward_result<Real> sparse_conv(const Q& q, const K& k, const V& v, const sparse_filter<Taps, Values>& filter,
                                 const options& opt = {}) {
  const auto geo = geometry_of_taps(v, filter, opt);
  return forward(read_tensors<Real>(q, k, v), tapped<Real>(filter.values, geo, opt), opt.gate_fn);
}

/// dvalues[h,i] is the sum of dw along the pairs that use tap i.
template <class Real>
std::vector<Real> fold_taps(const tap_geometry& geo, const pair_gradient<Real>& dw) {
  std::vector<Real> dr(static_cast<std::size_t>(geo.heads * geo.count));
  for (index_t b = 0; b < dw.B; ++b)
    for (index_t h = 0; h < dw.H; ++h)
      for (index_t t = 0; t < dw.Tq; ++t)
        for (index_t s = 0; s < dw.Tk; ++s)
          if (const index_t i = geo.tap(h, t, s); i >= 0)
            dr[static_cast<std::size_t>(h * geo.count + i)] += dw(b, h, t, s);
  return dr;
}

/// The gradient of the values is the dr of the result.
template <class Real, class Q, class K, class V, class Taps, class Values, class DY>
backward_result<Real> sparse_conv_backward(const Q& q, const K& k, const V& v,
                                           const sparse_filter<Taps, Values>& filter, const DY& dy,
                                           const options& opt = {}) {
  const auto x = read_tensors<Real>(q, k, v);
  const auto geo = geometry_of_taps(v, filter, opt);
  const auto p = tapped<Real>(filter.values, geo, opt);
  pair_gradient<Real> dw(x.B(), p.H, x.Tq(), x.Tk()), dw_terms = dw;
  auto out = backward(x, p, opt.gate_fn, read_sequence<Real>(dy), dw, dw_terms);
  out.dr = fold_taps(geo, dw);
  out.terms.dr = fold_taps(geo, dw_terms);
  return out;
}

}  // namespace aft::reference
