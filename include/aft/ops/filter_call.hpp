// SPDX-License-Identifier: Apache-2.0
/// @file filter_call.hpp  What the calls that look at a filter alone have in common: their tensors, checked, and the
/// problem that a device gets.
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/checks/memory.hpp>
#include <aft/core/checks/type_checks.hpp>
#include <aft/core/views/element_access.hpp>

#include <cmath>
#include <cstdio>

namespace aft {
inline namespace AFT_ISA {

namespace checks {

/// The tensors of any of these calls; those of the others are empty. `r` gives the shape.
struct filter_call {
  const char* op = "";
  argument r{"r"}, noise{"noise"}, gain{"gain"}, shift{"shift"}, dout{"dout"};
  argument out{"out"}, dr{"dr"}, dgain{"dgain"}, dshift{"dshift"};
  double tau = 1;
};

/// Every tensor has the shape of r, or that of its heads.
inline void require_filter_call(const filter_call& c) {
  const argument* const inputs[] = {&c.r, &c.noise, &c.gain, &c.shift, &c.dout};
  const argument* const outputs[] = {&c.out, &c.dr, &c.dgain, &c.dshift};
  for (const argument* a : inputs) require_sane(c.op, *a);
  for (const argument* a : outputs) require_sane(c.op, *a);
  for (const argument* a : {&c.noise, &c.dout, &c.out, &c.dr, &c.gain, &c.shift, &c.dgain, &c.dshift}) {
    for (std::size_t i = 0; i < a->view.rank(); ++i) {
      require_extent(c.op, *a, i, i == 0 ? "H" : "taps", c.r.view.extent(i));
    }
  }
  // Written so that NaN is refused too.
  if (!(c.tau > 0) || !std::isfinite(c.tau)) {
    char got[32];
    std::snprintf(got, sizeof got, "%g", c.tau);
    fail(c.op, {"tau"}, "a finite number above 0", got);
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

/// Number i of a tensor (H).
inline double load_at(const any_view& v, index_t i) {
  return load_element(v.data(), v.type(), i * v.stride(0));
}
inline void store_at(const any_view& v, index_t i, double x) {
  store_element(v.data(), v.type(), i * v.stride(0), x);
}

/// The call for a device, whose shape is that of r.
inline filter_problem to_filter_problem(const filter_call& c, filter_form form) {
  filter_problem p;
  p.form = form;
  p.tau = c.tau;
  p.heads = c.r.view.extent(0);
  for (std::size_t i = 1; i < c.r.view.rank(); ++i) p.taps[3 - c.r.view.rank() + i] = c.r.view.extent(i);
  p.r = to_filter_tensor(c.r.view);
  p.noise = to_filter_tensor(c.noise.view);
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
                  "aft: the filter r has rank 2 (H, taps), 3 (H, kh, kw) or 4 (H, kd, kh, kw)");
    return R::rank();
  } else {
    return 2;
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
