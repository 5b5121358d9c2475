// SPDX-License-Identifier: Apache-2.0
/// @file erase.hpp  From the typed arguments of an operator to the untyped record that validation works on.
#pragma once

#include <aft/core/checks/call.hpp>
#include <aft/core/checks/type_checks.hpp>
#include <aft/math/bias.hpp>
#include <aft/math/generated_bias.hpp>
#include <aft/math/sparse_filter.hpp>
#include <aft/math/window.hpp>

#include <memory>

namespace aft {
inline namespace AFT_ISA {
namespace checks {

inline any_view erase(no_grad_t) {
  return {};
}
template <class T, std::size_t Rank, class Space>
any_view erase(const tensor_view<T, Rank, Space>& v) {
  return v;
}

/// What stands for the function of a generated bias, or of its gradient, where types are erased.
template <class C, class F>
void generate_row(const void* f, index_t b, index_t h, index_t t, index_t s0, void* row, index_t count) noexcept {
  (*static_cast<const F*>(f))(b, h, t, s0, std::span<C>(static_cast<C*>(row), static_cast<std::size_t>(count)));
}
template <class C, class F>
void take_row(const void* f, index_t part, index_t b, index_t h, index_t t, index_t s0, const void* dw,
              index_t count) noexcept {
  const std::span<const C> row(static_cast<const C*>(dw), static_cast<std::size_t>(count));
  (*static_cast<const F*>(f))(part, b, h, t, s0, row);
}

/// C is the arithmetic type, which the rows of a generated bias have.
template <class C>
void set_bias(bias_arguments&, no_grad_t) {}
template <class C, class W>
void set_bias(bias_arguments& b, const dense_bias<W>& bias) {
  b.kind = bias_kind::dense;
  b.w.view = bias.w;
}
template <class C, class U, class V>
void set_bias(bias_arguments& b, const factorized_bias<U, V>& bias) {
  b.kind = bias_kind::factorized;
  b.u.view = bias.u;
  b.v.view = bias.v;
}
template <class C, class W>
void set_bias(bias_arguments& b, const banded_bias<W>& bias) {
  b.kind = bias_kind::banded;
  b.w.view = bias.w;
}
template <class C, class T, std::size_t Rank, class Space>
void set_bias(bias_arguments& b, const tensor_view<T, Rank, Space>& filter) {
  b.kind = bias_kind::filter;
  b.r.view = filter;
}
template <class C, class F>
void set_bias(bias_arguments& b, const generated_bias<F>& bias) {
  b.kind = bias_kind::generated;
  b.heads = bias.heads;
  b.batched = bias.batched;
  generated_rows& rows = b.rows;
  rows.f = std::addressof(bias.f);
  rows.generate = &generate_row<C, F>;
  rows.wide = std::is_same_v<C, double>;
}
template <class C, class F>
void set_bias(bias_arguments& b, const generated_bias_gradient<F>& bias) {
  b.kind = bias_kind::generated;
  generated_rows& rows = b.rows;
  rows.f = std::addressof(bias.f);
  rows.take = &take_row<C, F>;
  rows.parts = bias.parts;
  rows.wide = std::is_same_v<C, double>;
}

/// Element types and spaces inside a bias.
template <class E, class T, class W>
constexpr bool check_bias(std::type_identity<dense_bias<W>>) {
  return detail::check_bias_tensor<detail::arg::w, E, T, W>();
}
template <class E, class T, class W>
constexpr bool check_bias(std::type_identity<banded_bias<W>>) {
  return detail::check_bias_tensor<detail::arg::w, E, T, W>();
}
template <class E, class T, class U, class V>
constexpr bool check_bias(std::type_identity<factorized_bias<U, V>>) {
  return detail::fits<detail::first_of({detail::find_bias_tensor<detail::arg::u, E, T, U>(),
                                        detail::find_bias_tensor<detail::arg::factor_v, E, T, V>()})>();
}
/// The functions of a generated bias are looked at beside the tensors, see find_bias.
template <class E, class T, class F>
constexpr bool check_bias(std::type_identity<generated_bias<F>>) {
  return true;
}
template <class E, class T, class F>
constexpr bool check_bias(std::type_identity<generated_bias_gradient<F>>) {
  return true;
}

/// Whether the library can call a function with rows of its numbers, from any thread.
template <class E, class T, class F>
constexpr detail::finding find_function(std::type_identity<generated_bias<F>>) {
  using row = std::span<compute_t<T>>;
  using detail::fault;
  fault found = fault::none;
  if (!std::is_nothrow_invocable_v<const F&, index_t, index_t, index_t, index_t, row>) found = fault::row_throws;
  if (!std::is_invocable_v<const F&, index_t, index_t, index_t, index_t, row>) found = fault::row_function;
  if (!std::is_same_v<runs_on_t<E>, cpu>) found = fault::function_on_device;
  return {detail::arg::w, found};
}
template <class E, class T, class F>
constexpr detail::finding find_function(std::type_identity<generated_bias_gradient<F>>) {
  using row = std::span<const compute_t<T>>;
  using detail::fault;
  fault found = fault::none;
  if (!std::is_nothrow_invocable_v<const F&, index_t, index_t, index_t, index_t, index_t, row>)
    found = fault::gradient_throws;
  if (!std::is_invocable_v<const F&, index_t, index_t, index_t, index_t, index_t, row>)
    found = fault::gradient_function;
  return {detail::arg::dbias, found};
}
template <class E, class T, class Bias, class DBias = no_grad_t>
constexpr detail::finding find_bias() {
  detail::finding found;
  if constexpr (is_generated_bias<Bias>) found = find_function<E, T>(std::type_identity<Bias>{});
  if constexpr (is_generated_bias_gradient<DBias>) {
    found = detail::first_of({found, find_function<E, T>(std::type_identity<DBias>{})});
  } else if constexpr (is_generated_bias<Bias> && !detail::is_no_grad<DBias>) {
    found = detail::first_of({found, {detail::arg::dbias, detail::fault::gradient_stored}});
  }
  return found;
}

template <class W>
constexpr detail::finding find_bias_mutable(std::type_identity<dense_bias<W>>) {
  return detail::find_mutable<detail::arg::dbias, W>();
}
template <class W>
constexpr detail::finding find_bias_mutable(std::type_identity<banded_bias<W>>) {
  return detail::find_mutable<detail::arg::dbias, W>();
}
template <class U, class V>
constexpr detail::finding find_bias_mutable(std::type_identity<factorized_bias<U, V>>) {
  return detail::first_of(
      {detail::find_mutable<detail::arg::u, U>(), detail::find_mutable<detail::arg::factor_v, V>()});
}
template <class F>
constexpr detail::finding find_bias_mutable(std::type_identity<generated_bias_gradient<F>>) {
  return {};
}

/// A bias of the same kind, over views of the same ranks.
template <class A, class B>
inline constexpr bool same_bias = false;
template <class A, class B>
inline constexpr bool same_bias<dense_bias<A>, dense_bias<B>> = A::rank() == B::rank();
template <class A, class B>
inline constexpr bool same_bias<banded_bias<A>, banded_bias<B>> = A::rank() == B::rank();
template <class AU, class AV, class BU, class BV>
inline constexpr bool same_bias<factorized_bias<AU, AV>, factorized_bias<BU, BV>> =
    AU::rank() == BU::rank() && AV::rank() == BV::rank();
template <class F, class G>
inline constexpr bool same_bias<generated_bias<F>, generated_bias_gradient<G>> = true;

/// A bias of what is no view, which has been told.
template <class B>
inline constexpr bool is_refused_bias =
    std::is_same_v<B, dense_bias<detail::not_a_view>> || std::is_same_v<B, banded_bias<detail::not_a_view>> ||
    std::is_same_v<B, factorized_bias<detail::not_a_view, detail::not_a_view>>;

/// The gradient of a bias of type Bias: the same bias over mutable views, or no_grad.
template <class E, class T, class Bias, class DBias>
constexpr bool check_bias_gradient() {
  if constexpr (detail::is_no_grad<DBias>) {
    return true;
  } else if constexpr (is_refused_bias<DBias>) {
    return false;
  } else {
    constexpr bool same = same_bias<Bias, DBias>;
    static_assert(
        same,
        "aft: dbias must be the same kind of bias as bias, over mutable views of the same ranks, or aft::no_grad");
    if constexpr (same) {
      if constexpr (check_bias<E, T>(std::type_identity<DBias>{})) {
        return detail::fits<find_bias_mutable(std::type_identity<DBias>{})>();
      } else {
        return false;
      }
    } else {
      return false;
    }
  }
}

/// q, k, v and the tensor of the output's shape, all of v's element type, with ranks from Low to High. v goes first, as
/// it names the type.
template <class E, std::size_t Low, std::size_t High, class Q, class K, class V>
constexpr detail::finding find_inputs() {
  using T = detail::value_of_t<V>;
  return detail::first_of({detail::find_input<detail::arg::v, E, T, Low, High, V>(),
                           detail::find_input<detail::arg::q, E, T, Low, High, Q>(),
                           detail::find_input<detail::arg::k, E, T, Low, High, K>()});
}

template <class E, std::size_t Low, std::size_t High, class T, class DY, class DQ, class DK, class DV>
constexpr detail::finding find_gradients() {
  return detail::first_of({detail::find_input<detail::arg::dy, E, T, Low, High, DY>(),
                           detail::find_gradient<detail::arg::dq, E, T, Low, High, DQ>(),
                           detail::find_gradient<detail::arg::dk, E, T, Low, High, DK>(),
                           detail::find_gradient<detail::arg::dv, E, T, Low, High, DV>()});
}

/// The options, which stay the caller's, and the tensors in them.
inline void set_options(call& c, const options& opt) {
  c.opt = &opt;
  c.mask.view = opt.mask;
  c.key_lengths.view = opt.key_lengths;
  c.query_lengths.view = opt.query_lengths;
  c.lse.view = opt.lse;
  c.average.view = opt.average;
  set_sequence_options(c, opt);
}

/// The part of the record that all operators share.
template <class E, class Q, class K, class V>
call make_call(const char* op, const Q& q, const K& k, const V& v, const options& opt) {
  call c;
  c.op = op;
  c.type = dtype_of<detail::value_of_t<V>>;
  c.on_device = std::is_same_v<runs_on_t<E>, cuda>;
  c.no_batch = K::rank() == 2 && V::rank() == 2;
  c.q.view = q;
  c.k.view = k;
  c.v.view = v;
  set_options(c, opt);
  return c;
}

template <class Y>
void set_output(call& c, const Y& y) {
  c.no_batch = c.no_batch && Y::rank() == 2;
  c.y.view = y;
}

template <class DY, class DQ, class DK, class DV>
void set_gradients(call& c, const DY& dy, const DQ& dq, const DK& dk, const DV& dv) {
  c.backward = true;
  c.no_batch = c.no_batch && DY::rank() == 2;
  c.dy.view = dy;
  c.dq.view = erase(dq);
  c.dk.view = erase(dk);
  c.dv.view = erase(dv);
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
