// SPDX-License-Identifier: Apache-2.0
/// @file simple.hpp  AFT-simple, AFT Eq. 5: no position bias.
#pragma once

#include "full.hpp"

namespace aft::reference {

template <class Real>
pairs<Real> unbiased(const options& opt) {
  pairs<Real> p;
  set_options(opt, p);
  p.inside = [](index_t, index_t) { return false; };
  return p;
}

template <class Real, class Q, class K, class V>
forward_result<Real> simple(const Q& q, const K& k, const V& v, const options& opt = {}) {
  return forward(read_tensors<Real>(q, k, v), unbiased<Real>(opt), opt.gate_fn);
}

template <class Real, class Q, class K, class V, class DY>
backward_result<Real> simple_backward(const Q& q, const K& k, const V& v, const DY& dy, const options& opt = {}) {
  pair_gradient<Real> none(0, 0, 0, 0), none_terms = none;
  return backward(read_tensors<Real>(q, k, v), unbiased<Real>(opt), opt.gate_fn, read_sequence<Real>(dy), none,
                  none_terms);
}

}  // namespace aft::reference
