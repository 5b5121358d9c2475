// SPDX-License-Identifier: Apache-2.0
/// @file conv.hpp  AFT-conv, AFT Eq. 6 and DAFT Eq. 7, 8: w[t,s] = r[h, s - t + left] inside the filter, 0 outside.
///
/// Written as Eq. 2 with that w. The papers' own form adds exp(r) - 1 to a global sum and cancels where r is very
/// negative; the value is the same.
#pragma once

#include "full.hpp"

namespace aft::reference {

/// The filter (H, taps...) on a grid: which entry of it, if any, a pair uses.
struct filter_geometry {
  std::vector<index_t> grid, taps, left;
  index_t first_query = 0;  ///< on a sequence query t stands there + t

  /// Row-major index of the tap that query t applies to key s, -1 outside the filter. Positions are row-major.
  index_t tap(index_t t, index_t s) const {
    index_t index = 0, scale = 1;
    if (grid.size() == 1) {
      // No remainders: a sequence may have more queries than keys.
      const index_t j = s - (first_query + t) + left[0];
      return j < 0 || j >= taps[0] ? -1 : j;
    }
    for (std::size_t axis = grid.size(); axis-- > 0;) {
      const index_t j = s % grid[axis] - t % grid[axis] + left[axis];
      if (j < 0 || j >= taps[axis]) return -1;
      index += j * scale;
      scale *= taps[axis];
      t /= grid[axis];
      s /= grid[axis];
    }
    return index;
  }
};

/// "same" placement, left = (taps-1)/2 on every axis; a causal sequence looks back, left = taps-1.
template <class V, class Filter>
filter_geometry geometry_of(const V& v, const Filter& r, const options& opt) {
  const bool causal = opt.causal;
  filter_geometry geo;
  geo.first_query = opt.first_query;
  for (std::size_t i = V::rank() == 2 ? 0 : 1; i + 1 < V::rank(); ++i) geo.grid.push_back(v.extent(i));
  for (std::size_t i = 1; i < Filter::rank(); ++i) {
    geo.taps.push_back(r.extent(i));
    geo.left.push_back(causal ? r.extent(i) - 1 : (r.extent(i) - 1) / 2);
  }
  return geo;
}

template <class Real, class Filter>
pairs<Real> filtered(const Filter& r, const filter_geometry& geo, const options& opt) {
  index_t taps = 1;
  for (index_t n : geo.taps) taps *= n;
  pairs<Real> p;
  p.H = r.extent(0);
  p.inside = [geo](index_t t, index_t s) { return geo.tap(t, s) >= 0; };
  p.w = [geo, taps, values = flatten<Real>(r)](index_t, index_t h, index_t t, index_t s) {
    return values[static_cast<std::size_t>(h * taps + geo.tap(t, s))];
  };
  set_options(opt, p);
  if (opt.outside == outside::excluded) {
    p.visible = [seen = p.visible, inside = p.inside](index_t b, index_t t, index_t s) {
      return inside(t, s) && seen(b, t, s);
    };
  }
  return p;
}

template <class Real, class Q, class K, class V, class Filter>
forward_result<Real> conv(const Q& q, const K& k, const V& v, const Filter& filter, const options& opt = {}) {
  const auto geo = geometry_of(v, filter, opt);
  return forward(read_tensors<Real>(q, k, v), filtered<Real>(filter, geo, opt), opt.gate_fn);
}

/// dr[h,j] is the sum of dw along the pairs that use tap j: diagonal sums on a sequence.
template <class Real>
std::vector<Real> fold_filter(const filter_geometry& geo, index_t size, const pair_gradient<Real>& dw) {
  std::vector<Real> dr(static_cast<std::size_t>(size));
  for (index_t b = 0; b < dw.B; ++b)
    for (index_t h = 0; h < dw.H; ++h)
      for (index_t t = 0; t < dw.Tq; ++t)
        for (index_t s = 0; s < dw.Tk; ++s) {
          const index_t j = geo.tap(t, s);
          if (j >= 0) dr[static_cast<std::size_t>(h * (size / dw.H) + j)] += dw(b, h, t, s);
        }
  return dr;
}

template <class Real, class Q, class K, class V, class Filter, class DY>
backward_result<Real> conv_backward(const Q& q, const K& k, const V& v, const Filter& filter, const DY& dy,
                                    const options& opt = {}) {
  const auto x = read_tensors<Real>(q, k, v);
  const auto geo = geometry_of(v, filter, opt);
  const auto p = filtered<Real>(filter, geo, opt);
  pair_gradient<Real> dw(x.B(), p.H, x.Tq(), x.Tk()), dw_terms = dw;
  auto out = backward(x, p, opt.gate_fn, read_sequence<Real>(dy), dw, dw_terms);
  out.dr = fold_filter(geo, filter.size(), dw);
  out.terms.dr = fold_filter(geo, filter.size(), dw_terms);
  return out;
}

}  // namespace aft::reference
