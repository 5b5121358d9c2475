// SPDX-License-Identifier: Apache-2.0
/// @file filter_entropy.hpp  The entropy of a filter's softmax, the regulariser that makes filters sparse (AFT Eq. 9).
#pragma once

#include <aft/core/problem/tap_softmax.hpp>
#include <aft/core/float_environment.hpp>

#include "erase.hpp"
#include "filter_call.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

/// With p the softmax of a head and x its distances from the largest tap, -log p = log sum exp(x) - x: a sum of terms
/// that are not negative, so that a small entropy has as many digits as a large one.
[[gnu::noinline]] inline void entropy_all(const filter_call& c) {
  for (index_t h = 0; h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    const tap_softmax softmax(r);
    double entropy = softmax.log_sum();
    for (index_t i = 0; i < r.size(); ++i) {
      const double p = softmax.share(i);
      if (p != 0) entropy -= p * softmax.distance(i);
    }
    store_at(c.out.view, h, entropy);
  }
}

/// dr[j] = -dout p[j] (log p[j] + entropy), where log sum exp(x) drops out: -dout p[j] (x[j] - sum p x).
[[gnu::noinline]] inline void entropy_backward_all(const filter_call& c) {
  for (index_t h = 0; c.dr.given() && h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    const tap_row dr(c.dr.view, h);
    const tap_softmax softmax(r);
    const double dout = load_at(c.dout.view, h);
    double mean = 0;
    for (index_t i = 0; i < r.size(); ++i) {
      const double p = softmax.share(i);
      if (p != 0) mean += p * softmax.distance(i);
    }
    for (index_t i = 0; i < r.size(); ++i) {
      const double p = softmax.share(i);
      dr.store(i, p == 0 ? 0 : dout * p * (mean - softmax.distance(i)));
    }
  }
}

/// The call or its gradient on the host, all of it checked before anything is written.
inline void run_filter_entropy(const filter_call& c, const cpu& exec) {
  require_executor(c.op, exec);
  require_filter_call(c);
  const float_environment own;
  if (c.dout.given()) {
    entropy_backward_all(c);
  } else {
    entropy_all(c);
  }
}

}  // namespace checks

/// out = -sum p log p per head, with p = softmax(r) over the taps of the head: how evenly a filter is spread (AFT Eq.
/// 9, whose sum over the heads is the regulariser). 0 for one tap, log(taps) for a constant filter; a tap whose p is 0
/// adds 0.
///
/// Shapes: r (H, taps), (H, kh, kw) or (H, kd, kh, kw); out (H). Types: each tensor any of float, double, half,
/// bfloat16; sums are in double. Strides: any. For any finite r the result has double's accuracy: no difference of
/// large numbers is formed. A tap of -inf has p = 0; a head with NaN or +inf, or with nothing but -inf, gives NaN.
/// Errors: shape_error before anything is written; out overlaps nothing. device_error with aft::cuda.
/// Cost: two passes over the filter and three exponentials a tap, on one thread, or on a warp a head with aft::cuda;
/// the result does not depend on anything but the head's taps.
template <executor E, class R, class Out>
void filter_entropy(const E& exec, const R& r, const Out& out) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool out_fits = checks::check_filter_output<arg::out, E, 1, 1, Out>();
  if constexpr (r_fits && out_fits) {
    checks::filter_call c;
    c.op = "aft::filter_entropy";
    c.r.view = r;
    c.out.view = out;
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_filter_entropy(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::entropy), exec);
    }
  }
}

/// aft::filter_entropy without an executor.
template <detail::not_executor R, class Out>
void filter_entropy(const R& r, const Out& out) {
  filter_entropy(typename detail::executor_for<R>::type{}, r, out);
}

/// Gradient of aft::filter_entropy: dout is (H), dr has the shape of r and may be aft::no_grad. dr of a constant filter
/// is 0. Types, strides, errors, cost: as aft::filter_entropy.
template <executor E, class R, class DOut, class DR>
void filter_entropy_backward(const E& exec, const R& r, const DOut& dout, const DR& dr) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool dout_fits = checks::check_filter_tensor<arg::dout, E, 1, 1, DOut>();
  constexpr bool dr_fits = checks::check_filter_output<arg::dr, E, rank, rank, DR>();
  if constexpr (r_fits && dout_fits && dr_fits) {
    checks::filter_call c;
    c.op = "aft::filter_entropy_backward";
    c.r.view = r;
    c.dout.view = dout;
    c.dr.view = checks::erase(dr);
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_filter_entropy(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::entropy), exec);
    }
  }
}

/// aft::filter_entropy_backward without an executor.
template <detail::not_executor R, class DOut, class DR>
void filter_entropy_backward(const R& r, const DOut& dout, const DR& dr) {
  filter_entropy_backward(typename detail::executor_for<R>::type{}, r, dout, dr);
}

}  // namespace AFT_ISA
}  // namespace aft
