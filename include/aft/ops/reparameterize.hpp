// SPDX-License-Identifier: Apache-2.0
/// @file reparameterize.hpp  The filter of AFT-conv as a normalised filter with a gain and a shift (AFT Eq. 8, DAFT Eq.
/// 9).
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/problem/filter_stats.hpp>
#include <aft/core/float_environment.hpp>
#include <aft/core/checks/memory.hpp>

#include "erase.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace checks {

/// The tensors of either call; those of the other are empty. `r` gives the shape.
struct filter_call {
  const char* op = "";
  argument r{"r"}, gain{"gain"}, shift{"shift"}, dout{"dout"};
  argument out{"out"}, dr{"dr"}, dgain{"dgain"}, dshift{"dshift"};
};

inline void require_filter_call(const filter_call& c) {
  const argument* const inputs[] = {&c.r, &c.gain, &c.shift, &c.dout};
  const argument* const outputs[] = {&c.out, &c.dr, &c.dgain, &c.dshift};
  for (const argument* a : inputs) require_sane(c.op, *a);
  for (const argument* a : outputs) require_sane(c.op, *a);
  for (const argument* a : {&c.dout, &c.out, &c.dr}) {
    for (std::size_t i = 0; a->given() && i < c.r.view.rank(); ++i) {
      require_extent(c.op, *a, i, i == 0 ? "H" : "taps", c.r.view.extent(i));
    }
  }
  for (const argument* a : {&c.gain, &c.shift, &c.dgain, &c.dshift}) {
    if (a->given()) require_extent(c.op, *a, 0, "H", c.r.view.extent(0));
  }
  for (const argument* a : inputs) {
    if (a->given()) require_data(c.op, *a);
  }
  for (const argument* const* a = outputs; a != outputs + 4; ++a) {
    if (!(*a)->given()) continue;
    require_output(c.op, **a);
    require_apart_from_itself(c.op, **a);
    for (const argument* const* b = outputs; b != a; ++b) require_apart(c.op, **a, **b);
    for (const argument* b : inputs) require_apart(c.op, **a, *b);
  }
}

inline double load_at(const any_view& v, index_t i) {
  return load_element(v.data(), v.type(), i * v.stride(0));
}

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
      tap_row(c.dr.view, h).store(i, stats.constant() ? 0 : gain * stats.per_deviation(slope));
    }
    if (c.dgain.given()) store_element(c.dgain.view.data(), c.dgain.view.type(), h * c.dgain.view.stride(0), product);
    if (c.dshift.given()) store_element(c.dshift.view.data(), c.dshift.view.type(), h * c.dshift.view.stride(0), sum);
  }
}

/// The call for a device, whose shape is that of r.
inline filter_problem to_filter_problem(const filter_call& c) {
  filter_problem p;
  p.heads = c.r.view.extent(0);
  for (std::size_t i = 1; i < c.r.view.rank(); ++i) p.taps[3 - c.r.view.rank() + i] = c.r.view.extent(i);
  p.r = to_filter_tensor(c.r.view);
  p.gain = to_filter_tensor(c.gain.view);
  p.shift = to_filter_tensor(c.shift.view);
  p.dout = to_filter_tensor(c.dout.view);
  p.out = to_filter_tensor(c.out.view);
  p.dr = to_filter_tensor(c.dr.view);
  p.dgain = to_filter_tensor(c.dgain.view);
  p.dshift = to_filter_tensor(c.dshift.view);
  p.backward = c.dout.given();
  return p;
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

/// A view of any element type; each element is widened to double, so types may be mixed.
template <detail::arg Argument, class E, std::size_t Low, std::size_t High, class V>
constexpr bool check_filter_tensor() {
  return detail::check_input<Argument, E, detail::value_of_t<V>, Low, High, V>();
}

template <detail::arg Argument, class E, std::size_t Low, std::size_t High, class V>
constexpr bool check_filter_output() {
  if constexpr (detail::is_no_grad<V>) {
    return true;
  } else if constexpr (check_filter_tensor<Argument, E, Low, High, V>()) {
    return detail::check_mutable<V>();
  } else {
    return false;
  }
}

template <class R>
constexpr std::size_t filter_rank() {
  if constexpr (is_tensor_view<R>) {
    static_assert(R::rank() >= 2 && R::rank() <= 4,
                  "aft::reparameterize: r has rank 2 (H, taps), 3 (H, kh, kw) or 4 (H, kd, kh, kw)");
    return R::rank();
  } else {
    return 2;
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
      run_reparameterize<compute_t<typename R::value_type>>(checks::to_filter_problem(c), exec);
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
      run_reparameterize<compute_t<typename R::value_type>>(checks::to_filter_problem(c), exec);
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
