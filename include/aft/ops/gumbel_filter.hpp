// SPDX-License-Identifier: Apache-2.0
/// @file gumbel_filter.hpp  A filter times a sample of its own Gumbel softmax, which trains it towards one tap a head
/// (AFT Eq. 10), and what is left of it then.
#pragma once

#include <aft/core/problem/tap_softmax.hpp>
#include <aft/core/float_environment.hpp>

#include "erase.hpp"
#include "filter_call.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

[[gnu::noinline]] inline void gumbel_all(const filter_call& c) {
  for (index_t h = 0; h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    const tap_row noise(c.noise.view, h);
    const tap_softmax sample(r, noise, c.tau);
    for (index_t i = 0; i < r.size(); ++i) tap_row(c.out.view, h).store(i, r.load(i) * sample.share(i));
  }
}

/// With p the sample and a = dout r: dr[j] = dout[j] p[j] + p[j]/tau (a[j] - sum p a).
[[gnu::noinline]] inline void gumbel_backward_all(const filter_call& c) {
  for (index_t h = 0; c.dr.given() && h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    const tap_row noise(c.noise.view, h);
    const tap_row dout(c.dout.view, h);
    const tap_row dr(c.dr.view, h);
    const tap_softmax sample(r, noise, c.tau);
    // p adds up to 1, so a constant may be taken off a. That of the largest tap: its p is nearly 1 where the others'
    // are small, and a[j] - sum p a would be what rounding leaves of it.
    const index_t top = sample.largest();
    const double base = r.size() == 0 ? 0 : dout.load(top) * r.load(top);
    double mean = 0;
    for (index_t i = 0; i < r.size(); ++i) {
      const double p = sample.share(i);
      if (p != 0) mean += p * (dout.load(i) * r.load(i) - base);
    }
    for (index_t i = 0; i < r.size(); ++i) {
      const double p = sample.share(i);
      const double slope = (dout.load(i) * r.load(i) - base) - mean;
      dr.store(i, p == 0 ? 0 : p * (dout.load(i) + slope / c.tau));
    }
  }
}

/// Of several largest taps the first; NaN is larger than any number, so that it is not lost.
[[gnu::noinline]] inline void largest_all(const filter_call& c) {
  for (index_t h = 0; h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    index_t top = 0;
    for (index_t i = 1; i < r.size(); ++i) {
      if (std::isnan(r.load(top))) break;
      if (!(r.load(i) <= r.load(top))) top = i;
    }
    for (index_t i = 0; i < r.size(); ++i) tap_row(c.out.view, h).store(i, i == top ? r.load(i) : 0);
  }
}

/// The call, its gradient, or without noise the form of inference, on the host; all is checked before anything is
/// written.
inline void run_gumbel_filter(const filter_call& c, const cpu& exec) {
  require_executor(c.op, exec);
  require_filter_call(c);
  const float_environment own;
  if (!c.noise.given()) {
    largest_all(c);
  } else if (c.dout.given()) {
    gumbel_backward_all(c);
  } else {
    gumbel_all(c);
  }
}

}  // namespace checks

/// out = r p per head, with p = softmax((r + noise) / tau) over the taps of the head: the filter times a sample of its
/// Gumbel softmax (AFT Eq. 10, where the filter's taps are their own logits; Jang et al., arXiv 1611.01144). The paper
/// trains with tau = 0.5.
///
/// noise is the caller's: independent samples -log(-log(x)), x uniform in (0, 1), drawn anew for every step; zeros
/// give the softmax itself. aft::gumbel_filter_hard is the form of inference.
/// Shapes: r, noise and out (H, taps), (H, kh, kw) or (H, kd, kh, kw). Types: each tensor any of float, double, half,
/// bfloat16; sums are in double. Strides: any. tau: finite and above 0. For any finite r and noise no sum overflows and
/// none cancels. A head with NaN or an infinity gives NaN where p is, and where -inf meets p = 0.
/// Errors: shape_error before anything is written; out overlaps nothing. device_error with aft::cuda.
/// Cost: two passes over the filter and two exponentials a tap, on one thread, or on a warp a head with aft::cuda; the
/// result does not depend on anything but the head's taps.
template <executor E, class R, class Noise, detail::plain_number Tau, class Out>
void gumbel_filter(const E& exec, const R& r, const Noise& noise, Tau tau, const Out& out) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool noise_fits = checks::check_filter_tensor<arg::noise, E, rank, rank, Noise>();
  constexpr bool out_fits = checks::check_filter_output<arg::out, E, rank, rank, Out>();
  if constexpr (r_fits && noise_fits && out_fits) {
    checks::filter_call c;
    c.op = "aft::gumbel_filter";
    c.r.view = r;
    c.noise.view = noise;
    c.tau = static_cast<double>(tau);
    c.out.view = out;
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_gumbel_filter(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::gumbel), exec);
    }
  }
}

/// aft::gumbel_filter without an executor.
template <detail::not_executor R, class Noise, detail::plain_number Tau, class Out>
void gumbel_filter(const R& r, const Noise& noise, Tau tau, const Out& out) {
  gumbel_filter(typename detail::executor_for<R>::type{}, r, noise, tau, out);
}

/// Gradient of aft::gumbel_filter for the same noise and tau: dout and dr have the shape of r; dr may be aft::no_grad.
/// It runs through both, the filter that is weighed and the sample that weighs it. Products of dout and r have to be
/// finite in double. Types, strides, errors, cost: as aft::gumbel_filter.
template <executor E, class R, class Noise, detail::plain_number Tau, class DOut, class DR>
void gumbel_filter_backward(const E& exec, const R& r, const Noise& noise, Tau tau, const DOut& dout, const DR& dr) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool noise_fits = checks::check_filter_tensor<arg::noise, E, rank, rank, Noise>();
  constexpr bool dout_fits = checks::check_filter_tensor<arg::dout, E, rank, rank, DOut>();
  constexpr bool dr_fits = checks::check_filter_output<arg::dr, E, rank, rank, DR>();
  if constexpr (r_fits && noise_fits && dout_fits && dr_fits) {
    checks::filter_call c;
    c.op = "aft::gumbel_filter_backward";
    c.r.view = r;
    c.noise.view = noise;
    c.tau = static_cast<double>(tau);
    c.dout.view = dout;
    c.dr.view = checks::erase(dr);
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_gumbel_filter(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::gumbel), exec);
    }
  }
}

/// aft::gumbel_filter_backward without an executor.
template <detail::not_executor R, class Noise, detail::plain_number Tau, class DOut, class DR>
void gumbel_filter_backward(const R& r, const Noise& noise, Tau tau, const DOut& dout, const DR& dr) {
  gumbel_filter_backward(typename detail::executor_for<R>::type{}, r, noise, tau, dout, dr);
}

/// The form of aft::gumbel_filter for inference: the sample becomes one-hot, so that out is r at the head's largest tap
/// and 0 elsewhere (AFT, below Eq. 10). Of equal taps the first in row-major order; NaN counts as the largest.
/// Shapes, types, strides, errors: as aft::gumbel_filter. Cost: two passes over the filter.
template <executor E, class R, class Out>
void gumbel_filter_hard(const E& exec, const R& r, const Out& out) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool out_fits = checks::check_filter_output<arg::out, E, rank, rank, Out>();
  if constexpr (r_fits && out_fits) {
    checks::filter_call c;
    c.op = "aft::gumbel_filter_hard";
    c.r.view = r;
    c.out.view = out;
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_gumbel_filter(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::largest), exec);
    }
  }
}

/// aft::gumbel_filter_hard without an executor.
template <detail::not_executor R, class Out>
void gumbel_filter_hard(const R& r, const Out& out) {
  gumbel_filter_hard(typename detail::executor_for<R>::type{}, r, out);
}

}  // namespace AFT_ISA
}  // namespace aft
