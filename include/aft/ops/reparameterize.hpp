// SPDX-License-Identifier: Apache-2.0
/// @file reparameterize.hpp  The filter of AFT-conv as a normalised filter with a gain and a shift (AFT Eq. 8, DAFT Eq.
/// 9).
#pragma once

#include <aft/core/problem/filter_stats.hpp>
#include <aft/core/float_environment.hpp>

#include "erase.hpp"
#include "filter_call.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

[[gnu::noinline]] inline void reparameterize_all(const filter_call& c) {
  for (index_t h = 0; h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    const tap_row out(c.out.view, h);
    const filter_stats stats(r);
    const double gain = load_at(c.gain.view, h);
    const double shift = load_at(c.shift.view, h);
    for (index_t i = 0; i < r.size(); ++i) {
      out.store(i, stats.constant() ? shift : gain * stats.normalised(r.load(i)) + shift);
    }
  }
}

/// With z = (r - mean) / std: dr[j] = gain/std (dout[j] - mean(dout) - z[j] sum(dout z) / (N-1)), dgain = sum(dout z),
/// dshift = sum(dout).
[[gnu::noinline]] inline void reparameterize_backward_all(const filter_call& c) {
  for (index_t h = 0; h < c.r.view.extent(0); ++h) {
    const tap_row r(c.r.view, h);
    const tap_row dout(c.dout.view, h);
    const filter_stats stats(r);
    const double gain = load_at(c.gain.view, h);
    const auto taps = static_cast<double>(r.size());
    double sum = 0;
    for (index_t i = 0; i < r.size(); ++i) sum += dout.load(i);
    // z adds up to 0, so a constant may be taken off dout: a large common part of it would only bring rounding.
    double product = 0;
    for (index_t i = 0; i < r.size() && !stats.constant(); ++i) {
      product += (dout.load(i) - sum / taps) * stats.normalised(r.load(i));
    }
    for (index_t i = 0; c.dr.given() && i < r.size(); ++i) {
      const double z = stats.constant() ? 0 : stats.normalised(r.load(i));
      const double slope = dout.load(i) - sum / taps - z * product / (taps - 1);
      tap_row(c.dr.view, h).store(i, stats.constant() ? 0 : stats.per_deviation(gain, slope));
    }
    if (c.dgain.given()) store_element(c.dgain.view.data(), c.dgain.view.type(), h * c.dgain.view.stride(0), product);
    if (c.dshift.given()) store_element(c.dshift.view.data(), c.dshift.view.type(), h * c.dshift.view.stride(0), sum);
  }
}

/// The call or its gradients on the host, all of it checked before anything is written.
inline void run_reparameterize(const filter_call& c, const cpu& exec) {
  require_executor(c.op, exec);
  require_filter_call(c);
  const float_environment own;
  if (c.dout.given()) {
    reparameterize_backward_all(c);
  } else {
    reparameterize_all(c);
  }
}

}  // namespace checks

/// out = gain (r - mean) / std + shift per head, the reparameterisation of a filter (AFT Eq. 8, DAFT Eq. 9).
///
/// Shapes: r and out (H, taps), (H, kh, kw) or (H, kd, kh, kw); gain and shift (H); mean and std run over the taps of a
/// head. std is that of torch.std, N-1 below the root, without an epsilon; where it is 0 or undefined, in a constant or
/// one-tap filter, out = shift.
/// Types: each tensor any of float, double, half, bfloat16; sums are in double. Strides: any.
/// Errors: shape_error before anything is written; out overlaps nothing. device_error with aft::cuda.
/// Cost: three passes over the filter, on one thread, or on a warp a head with aft::cuda; the result does not depend on
/// anything but the head's taps.
template <executor E, class R, class Gain, class Shift, class Out>
void reparameterize(const E& exec, const R& r, const Gain& gain, const Shift& shift, const Out& out) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool gain_fits = checks::check_filter_tensor<arg::gain, E, 1, 1, Gain>();
  constexpr bool shift_fits = checks::check_filter_tensor<arg::shift, E, 1, 1, Shift>();
  constexpr bool out_fits = checks::check_filter_output<arg::out, E, rank, rank, Out>();
  if constexpr (r_fits && gain_fits && shift_fits && out_fits) {
    checks::filter_call c;
    c.op = "aft::reparameterize";
    c.r.view = r;
    c.gain.view = gain;
    c.shift.view = shift;
    c.out.view = out;
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_reparameterize(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::normalised), exec);
    }
  }
}

/// aft::reparameterize without an executor.
template <detail::not_executor R, class Gain, class Shift, class Out>
void reparameterize(const R& r, const Gain& gain, const Shift& shift, const Out& out) {
  reparameterize(typename detail::executor_for<R>::type{}, r, gain, shift, out);
}

/// Gradients of aft::reparameterize: dout and dr have the shape of r, dgain and dshift are (H). Any of dr, dgain,
/// dshift may be aft::no_grad. For a constant or one-tap filter dr and dgain are 0 and dshift is the sum of dout.
/// Types, strides, errors, cost: as aft::reparameterize.
template <executor E, class R, class Gain, class Shift, class DOut, class DR, class DGain, class DShift>
void reparameterize_backward(const E& exec, const R& r, const Gain& gain, const Shift& shift, const DOut& dout,
                             const DR& dr, const DGain& dgain, const DShift& dshift) {
  using detail::arg;
  constexpr std::size_t rank = checks::filter_rank<R>();
  constexpr bool r_fits = checks::check_filter_tensor<arg::r, E, rank, rank, R>();
  constexpr bool gain_fits = checks::check_filter_tensor<arg::gain, E, 1, 1, Gain>();
  constexpr bool shift_fits = checks::check_filter_tensor<arg::shift, E, 1, 1, Shift>();
  constexpr bool dout_fits = checks::check_filter_tensor<arg::dout, E, rank, rank, DOut>();
  constexpr bool dr_fits = checks::check_filter_output<arg::dr, E, rank, rank, DR>();
  constexpr bool dgain_fits = checks::check_filter_output<arg::dgain, E, 1, 1, DGain>();
  constexpr bool dshift_fits = checks::check_filter_output<arg::dshift, E, 1, 1, DShift>();
  if constexpr (r_fits && gain_fits && shift_fits && dout_fits && dr_fits && dgain_fits && dshift_fits) {
    checks::filter_call c;
    c.op = "aft::reparameterize_backward";
    c.r.view = r;
    c.gain.view = gain;
    c.shift.view = shift;
    c.dout.view = dout;
    c.dr.view = checks::erase(dr);
    c.dgain.view = checks::erase(dgain);
    c.dshift.view = checks::erase(dshift);
    if constexpr (std::is_same_v<E, cpu>) {
      checks::run_reparameterize(c, exec);
    } else {
      checks::require_filter_call(c);
      run_filter<compute_t<typename R::value_type>>(checks::to_filter_problem(c, filter_form::normalised), exec);
    }
  }
}

/// aft::reparameterize_backward without an executor.
template <detail::not_executor R, class Gain, class Shift, class DOut, class DR, class DGain, class DShift>
void reparameterize_backward(const R& r, const Gain& gain, const Shift& shift, const DOut& dout, const DR& dr,
                             const DGain& dgain, const DShift& dshift) {
  reparameterize_backward(typename detail::executor_for<R>::type{}, r, gain, shift, dout, dr, dgain, dshift);
}

}  // namespace AFT_ISA
}  // namespace aft
