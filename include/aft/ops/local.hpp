// SPDX-License-Identifier: Apache-2.0
/// @file local.hpp  AFT-local: a learned bias inside a window around each query, 0 outside it (AFT Eq. 4, DAFT Eq. 7).
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/checks/prepare.hpp>

#include "erase.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

template <class E, class T, class Bias>
constexpr bool check_local_bias() {
  constexpr bool kind_fits =
      is_dense_bias<Bias> || is_factorized_bias<Bias> || is_banded_bias<Bias> || is_generated_bias<Bias>;
  static_assert(kind_fits,
                "aft::local: bias must be an aft::dense_bias, an aft::factorized_bias, an aft::banded_bias or an "
                "aft::generated_bias");
  if constexpr (kind_fits) {
    return checks::check_bias<E, T>(std::type_identity<Bias>{});
  } else {
    return false;
  }
}

}  // namespace checks

/// AFT-local: as aft::full, with w[t,s] inside the window and 0 outside. Keys outside still count (global
/// connectivity), unless options.outside is outside::excluded.
///
/// Shapes: q, y (B, Tq, d); v (B, Tk, d); k (B, Tk, hk); rank 2, (time, channels), is a batch of one. Query t stands at
/// position p = options.first_query + t among the keys; usually Tq and Tk are equal and first_query is 0. `bias` is a
/// dense_bias, factorized_bias or generated_bias as for aft::full, of which only the entries inside the window are
/// used, or a banded_bias with w (Tq, width) or (H, Tq, width), where entry j of row t belongs to key p - before + j
/// and width is win.width(). `win` holds the keys p - before <= s <= p + after; either may be negative (a window to one
/// side of p) as long as the width is at least 0. Width 0, window::strict(0), is AFT-simple; `simple` itself is 3
/// to 4.5 times as fast. Types, strides, options, errors: as aft::full. Cost: O(B T width d) multiply-adds and O(T (d +
/// width)) exponentials, whatever T is outside the window.
template <operator_executor E, class Q, class K, class V, class Bias, detail::operand Y>
void local(const E& exec, const Q& q, const K& k, const V& v, const Bias& bias, const window& win, const Y& y,
           const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (detail::fits<detail::first_of(
                    {checks::find_inputs<E, 2, 3, Q, K, V>(), checks::find_bias<E, T, Bias>()})>()) {
    if constexpr (checks::check_local_bias<E, T, Bias>()) {
      if constexpr (detail::fits<detail::find_output<detail::arg::y, E, T, 2, 3, Y>()>()) {
        checks::call c = checks::make_call<E>("aft::local", q, k, v, opt);
        c.cross_lengths = true;
        c.windowed = true;
        c.win = {true, win.before, win.after};
        checks::set_output(c, y);
        checks::set_bias<compute_t<T>>(c.bias, bias);
        run_forward<compute_t<T>, family::local>(checks::prepare(c, exec), exec);
      }
    }
  }
}

/// aft::local on the executor that works on the views' memory: aft::cpu{} for host views.
template <detail::not_executor Q, class K, class V, class Bias, detail::operand Y>
void local(const Q& q, const K& k, const V& v, const Bias& bias, const window& win, const Y& y,
           const options& opt = default_options) {
  local(typename detail::executor_for<V>::type{}, q, k, v, bias, win, y, opt);
}

/// Gradients of aft::local, with the meaning and the rules of aft::full_backward. The gradient of a bias entry outside
/// the window, or of a banded entry whose key does not exist, is 0.
template <operator_executor E, class Q, class K, class V, class Bias, class DY, class DQ, class DK, class DV,
          detail::operand DBias>
void local_backward(const E& exec, const Q& q, const K& k, const V& v, const Bias& bias, const window& win,
                    const DY& dy, const DQ& dq, const DK& dk, const DV& dv, const DBias& dbias,
                    const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (detail::fits<detail::first_of(
                    {checks::find_inputs<E, 2, 3, Q, K, V>(), checks::find_bias<E, T, Bias, DBias>()})>()) {
    if constexpr (checks::check_local_bias<E, T, Bias>()) {
      if constexpr (detail::fits<checks::find_gradients<E, 2, 3, T, DY, DQ, DK, DV>()>()) {
        if constexpr (checks::check_bias_gradient<E, T, Bias, DBias>()) {
          checks::call c = checks::make_call<E>("aft::local_backward", q, k, v, opt);
          c.cross_lengths = true;
          c.windowed = true;
          c.win = {true, win.before, win.after};
          checks::set_bias<compute_t<T>>(c.bias, bias);
          checks::set_gradients(c, dy, dq, dk, dv);
          checks::set_bias<compute_t<T>>(c.dbias, dbias);
          run_backward<compute_t<T>, family::local>(checks::prepare(c, exec), exec);
        }
      }
    }
  }
}

/// aft::local_backward on the executor that works on the views' memory.
template <detail::not_executor Q, class K, class V, class Bias, class DY, class DQ, class DK, class DV,
          detail::operand DBias>
void local_backward(const Q& q, const K& k, const V& v, const Bias& bias, const window& win, const DY& dy, const DQ& dq,
                    const DK& dk, const DV& dv, const DBias& dbias, const options& opt = default_options) {
  local_backward(typename detail::executor_for<V>::type{}, q, k, v, bias, win, dy, dq, dk, dv, dbias, opt);
}

}  // namespace AFT_ISA
}  // namespace aft
