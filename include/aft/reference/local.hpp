// SPDX-License-Identifier: Apache-2.0
/// @file local.hpp  AFT-local, AFT Eq. 4: the bias inside a window around t, 0 outside, where keys still count.
#pragma once

#include "full.hpp"

namespace aft::reference {

/// The pairs of a windowed bias. With outside::excluded a pair outside the window is not seen at all.
template <class Real, class Bias>
pairs<Real> windowed(const Bias& bias, const window& win, const options& opt) {
  pairs<Real> p;
  if constexpr (is_banded_bias<Bias>) {
    p = read_bias<Real>(bias, win, opt.first_query);
  } else {
    p = read_bias_at<Real>(bias, opt.first_query);
  }
  p.inside = [win, first = opt.first_query](index_t t, index_t s) {
    return first + t - win.before <= s && s <= first + t + win.after;
  };
  set_options(opt, p);
  if (opt.outside == outside::excluded) {
    p.visible = [seen = p.visible, inside = p.inside](index_t b, index_t t, index_t s) {
      return inside(t, s) && seen(b, t, s);
    };
  }
  return p;
}

template <class Real, class Q, class K, class V, class Bias>
forward_result<Real> local(const Q& q, const K& k, const V& v, const Bias& bias, const window& win,
                           const options& opt = {}) {
  return forward(read_tensors<Real>(q, k, v), windowed<Real>(bias, win, opt), opt.gate_fn);
}

template <class Real, class Q, class K, class V, class Bias, class DY>
backward_result<Real> local_backward(const Q& q, const K& k, const V& v, const Bias& bias, const window& win,
                                     const DY& dy, const options& opt = {}) {
  const auto x = read_tensors<Real>(q, k, v);
  const auto p = windowed<Real>(bias, win, opt);
  pair_gradient<Real> dw(x.B(), p.H, x.Tq(), x.Tk()), dw_terms = dw;
  auto out = backward(x, p, opt.gate_fn, read_sequence<Real>(dy), dw, dw_terms);
  if constexpr (is_banded_bias<Bias>) {
    out.dw = fold_bias(bias, win, opt.first_query, dw).first;
    out.terms.dw = fold_bias(bias, win, opt.first_query, dw_terms).first;
  } else {
    finish_bias(bias, dw, dw_terms, out);
  }
  return out;
}

}  // namespace aft::reference
