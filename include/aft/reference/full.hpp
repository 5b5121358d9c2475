// SPDX-License-Identifier: Apache-2.0
/// @file full.hpp  AFT-full, AFT Eq. 2, with a dense bias or the factorized one of Eq. 7 (DAFT Eq. 5, 6).
#pragma once

#include "average.hpp"

namespace aft::reference {

template <class Real, class Q, class K, class V>
tensors<Real> read_tensors(const Q& q, const K& k, const V& v) {
  return {read_sequence<Real>(q), read_sequence<Real>(k), read_sequence<Real>(v)};
}

template <class Real, class Q, class K, class V, class Bias>
forward_result<Real> full(const Q& q, const K& k, const V& v, const Bias& bias, const options& opt = {}) {
  const auto x = read_tensors<Real>(q, k, v);
  auto p = read_bias_at<Real>(bias, opt.first_query);
  set_options(opt, p);
  return forward(x, p, opt.gate_fn);
}

/// Folds the gradient of the pair weights into the shape of a dense or factorized bias.
template <class Real, class Bias>
void finish_bias(const Bias& bias, const pair_gradient<Real>& dw, const pair_gradient<Real>& dw_terms,
                 backward_result<Real>& out) {
  if constexpr (is_factorized_bias<Bias>) {
    auto g = fold_factors(bias, dw, [](Real f) { return f; });
    auto terms = fold_factors(bias, dw_terms, [](Real f) { return (std::abs)(f); });
    out.du = std::move(g.first);
    out.dv_factor = std::move(g.second);
    out.terms.du = std::move(terms.first);
    out.terms.dv_factor = std::move(terms.second);
  } else {
    out.dw = fold_bias(bias, dw).first;
    out.terms.dw = fold_bias(bias, dw_terms).first;
  }
}

template <class Real, class Q, class K, class V, class Bias, class DY>
backward_result<Real> full_backward(const Q& q, const K& k, const V& v, const Bias& bias, const DY& dy,
                                    const options& opt = {}) {
  const auto x = read_tensors<Real>(q, k, v);
  auto p = read_bias_at<Real>(bias, opt.first_query);
  set_options(opt, p);
  pair_gradient<Real> dw(x.B(), p.H, x.Tq(), x.Tk()), dw_terms = dw;
  auto out = backward(x, p, opt.gate_fn, read_sequence<Real>(dy), dw, dw_terms);
  finish_bias(bias, dw, dw_terms, out);
  return out;
}

}  // namespace aft::reference
