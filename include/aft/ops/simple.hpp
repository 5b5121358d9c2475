// SPDX-License-Identifier: Apache-2.0
/// @file simple.hpp  AFT-simple: no position bias at all (AFT Eq. 5).
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/checks/prepare.hpp>

#include "erase.hpp"

namespace aft {
inline namespace AFT_ISA {

/// AFT-simple: y[b,t,c] = gate(q[b,t,c]) * sum_s a[s,c] v[b,s,c] with a = softmax over s of k[b,s,c].
///
/// Shapes: q, y (B, Tq, d); v (B, Tk, d); k (B, Tk, hk), where hk divides d and value channel c uses key channel
/// c / (d/hk); rank 2, (time, channels), is a batch of one. Tq and Tk may differ (cross attention); with options.causal
/// query t sees keys up to options.first_query + t.
/// Types, strides, options, errors: as aft::full.
/// Cost: O(B T d), bound by memory; with options.causal a running fold over the keys, still O(B T d). A mask that
/// differs between queries makes it O(B Tq Tk d).
template <operator_executor E, class Q, class K, class V, detail::operand Y>
void simple(const E& exec, const Q& q, const K& k, const V& v, const Y& y, const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (detail::fits<checks::find_inputs<E, 2, 3, Q, K, V>()>()) {
    if constexpr (detail::fits<detail::find_output<detail::arg::y, E, T, 2, 3, Y>()>()) {
      checks::call c = checks::make_call<E>("aft::simple", q, k, v, opt);
      c.cross_lengths = true;
      checks::set_output(c, y);
      run_forward<compute_t<T>, simple_family<T>>(checks::prepare(c, exec), exec);
    }
  }
}

/// aft::simple on the executor that works on the views' memory: aft::cpu{} for host views.
template <detail::not_executor Q, class K, class V, detail::operand Y>
void simple(const Q& q, const K& k, const V& v, const Y& y, const options& opt = default_options) {
  simple(typename detail::executor_for<V>::type{}, q, k, v, y, opt);
}

/// Gradients of aft::simple, with the meaning and the rules of aft::full_backward.
template <operator_executor E, class Q, class K, class V, class DY, class DQ, class DK, detail::operand DV>
void simple_backward(const E& exec, const Q& q, const K& k, const V& v, const DY& dy, const DQ& dq, const DK& dk,
                     const DV& dv, const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (detail::fits<checks::find_inputs<E, 2, 3, Q, K, V>()>()) {
    if constexpr (detail::fits<checks::find_gradients<E, 2, 3, T, DY, DQ, DK, DV>()>()) {
      checks::call c = checks::make_call<E>("aft::simple_backward", q, k, v, opt);
      c.cross_lengths = true;
      checks::set_gradients(c, dy, dq, dk, dv);
      run_backward<compute_t<T>, simple_family<T>>(checks::prepare(c, exec), exec);
    }
  }
}

/// aft::simple_backward on the executor that works on the views' memory.
template <detail::not_executor Q, class K, class V, class DY, class DQ, class DK, detail::operand DV>
void simple_backward(const Q& q, const K& k, const V& v, const DY& dy, const DQ& dq, const DK& dk, const DV& dv,
                     const options& opt = default_options) {
  simple_backward(typename detail::executor_for<V>::type{}, q, k, v, dy, dq, dk, dv, opt);
}

}  // namespace AFT_ISA
}  // namespace aft
