// SPDX-License-Identifier: Apache-2.0
/// @file full.hpp  AFT-full: a learned bias for every pair of positions (AFT Eq. 2, 7; DAFT Eq. 5, 6).
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/checks/prepare.hpp>

#include "erase.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

template <class E, class T, class Bias>
constexpr bool check_full_bias() {
  constexpr bool kind_fits = is_dense_bias<Bias> || is_factorized_bias<Bias> || is_generated_bias<Bias>;
  static_assert(!is_banded_bias<Bias>,
                "aft::full: a banded_bias holds a window only: use aft::local, or a dense_bias here");
  static_assert(kind_fits || is_banded_bias<Bias>,
                "aft::full: bias must be an aft::dense_bias, an aft::factorized_bias or an aft::generated_bias");
  if constexpr (kind_fits) {
    return checks::check_bias<E, T>(std::type_identity<Bias>{});
  } else {
    return false;
  }
}

}  // namespace checks

/// AFT-full: y[b,t,c] = gate(q[b,t,c]) * sum_s a[t,s,c] v[b,s,c] with a = softmax over s of k[b,s,c] + w[t,s].
///
/// Shapes: q, y (B, Tq, d); v (B, Tk, d); k (B, Tk, hk), where hk divides d and value channel c uses key channel
/// c / (d/hk); rank 2, (time, channels), is a batch of one. Tq and Tk may differ (cross attention); with options.causal
/// query t then sees keys up to options.first_query + t, so that the last rows of a sequence can be asked for alone,
/// with first_query = Tk - Tq. `bias` is a
/// dense_bias with w (Tq, Tk), (H, Tq, Tk) or (B|1, H, Tq, Tk), or a factorized_bias with u (Tq, n) or (H, Tq, n) and
/// v (Tk, n) or (H, Tk, n), or a generated_bias with H heads (CPU), whose function is asked for every visible pair
/// once; H divides d and channel c uses head c / (d/H). Types: q, k, v, y hold one of float, double, half, bfloat16;
/// the bias holds the same or float (double for double). Arithmetic is in float (double for double), but for bfloat16
/// data on a CPU target with AVX512-BF16 and without AVX512-FP16, or with BF16 of ARM: unless options.arithmetic is
/// arithmetic::full, products are of bfloat16 operands there, within 3 u (1 + 4 u) max|v| of it, a lse within 2 u +
/// u^2, u = 2^-8. Strides: any, in elements, also negative; zero for inputs only. y may be exactly q and overlaps
/// nothing else. Options: all; `outside` has no meaning here. With gate::none q is not read, its shape is not checked.
/// Errors: shape_error before anything is written, naming the argument. Cost: O(B Tq Tk d) multiply-adds, O(Tk d + Tq
/// Tk) exponentials; scratch O(T d) plus tiles of a fixed size.
template <operator_executor E, class Q, class K, class V, class Bias, detail::operand Y>
void full(const E& exec, const Q& q, const K& k, const V& v, const Bias& bias, const Y& y,
          const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (detail::fits<detail::first_of(
                    {checks::find_inputs<E, 2, 3, Q, K, V>(), checks::find_bias<E, T, Bias>()})>()) {
    if constexpr (checks::check_full_bias<E, T, Bias>()) {
      if constexpr (detail::fits<detail::find_output<detail::arg::y, E, T, 2, 3, Y>()>()) {
        checks::call c = checks::make_call<E>("aft::full", q, k, v, opt);
        c.cross_lengths = true;
        checks::set_output(c, y);
        checks::set_bias<compute_t<T>>(c.bias, bias);
        run_forward<compute_t<T>, family::full>(checks::prepare(c, exec), exec);
      }
    }
  }
}

/// aft::full on the executor that works on the views' memory: aft::cpu{} for host views.
template <detail::not_executor Q, class K, class V, class Bias, detail::operand Y>
void full(const Q& q, const K& k, const V& v, const Bias& bias, const Y& y, const options& opt = default_options) {
  full(typename detail::executor_for<V>::type{}, q, k, v, bias, y, opt);
}

/// Gradients of aft::full. dy has the shape of y; dq, dk, dv have those of q, k, v and are overwritten; `dbias` is the
/// same kind of bias over mutable views of the same shapes, or a generated_bias_gradient. A shared bias collects the
/// sum over the batch, the gradient of a key channel or of a factor without heads the sum over what it serves. Where
/// the bias has a stride of 0 over the batch or the heads, its gradient may have an extent of 1 there, and is then the
/// sum. Any of dq, dk, dv, dbias may be aft::no_grad and then costs nothing. options.lse and options.average, when both
/// are given, are read: they must hold what the forward call with the same options wrote; otherwise both are
/// recomputed, in float. Of bfloat16 data dk, dv and dbias are products as in aft::full, within 3 u (1 + 4 u) of the
/// size of the terms that they add up. Outputs overlap neither each other nor any input; slices of one packed buffer
/// are fine. Errors: shape_error before anything is written. Cost: about twice the forward call.
template <operator_executor E, class Q, class K, class V, class Bias, class DY, class DQ, class DK, class DV,
          detail::operand DBias>
void full_backward(const E& exec, const Q& q, const K& k, const V& v, const Bias& bias, const DY& dy, const DQ& dq,
                   const DK& dk, const DV& dv, const DBias& dbias, const options& opt = default_options) {
  using T = detail::value_of_t<V>;
  if constexpr (detail::fits<detail::first_of(
                    {checks::find_inputs<E, 2, 3, Q, K, V>(), checks::find_bias<E, T, Bias, DBias>()})>()) {
    if constexpr (checks::check_full_bias<E, T, Bias>()) {
      if constexpr (detail::fits<checks::find_gradients<E, 2, 3, T, DY, DQ, DK, DV>()>()) {
        if constexpr (checks::check_bias_gradient<E, T, Bias, DBias>()) {
          checks::call c = checks::make_call<E>("aft::full_backward", q, k, v, opt);
          c.cross_lengths = true;
          checks::set_bias<compute_t<T>>(c.bias, bias);
          checks::set_gradients(c, dy, dq, dk, dv);
          checks::set_bias<compute_t<T>>(c.dbias, dbias);
          run_backward<compute_t<T>, family::full>(checks::prepare(c, exec), exec);
        }
      }
    }
  }
}

/// aft::full_backward on the executor that works on the views' memory.
template <detail::not_executor Q, class K, class V, class Bias, class DY, class DQ, class DK, class DV,
          detail::operand DBias>
void full_backward(const Q& q, const K& k, const V& v, const Bias& bias, const DY& dy, const DQ& dq, const DK& dk,
                   const DV& dv, const DBias& dbias, const options& opt = default_options) {
  full_backward(typename detail::executor_for<V>::type{}, q, k, v, bias, dy, dq, dk, dv, dbias, opt);
}

}  // namespace AFT_ISA
}  // namespace aft
