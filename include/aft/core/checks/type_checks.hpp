// SPDX-License-Identifier: Apache-2.0
/// @file checks/type_checks.hpp  Mistakes that are visible in the types of a call, named at compile time.
///
/// Each check returns whether it passed, so that an operator can stop there: the compiler then prints the one message
/// and not the errors that follow from it. `Argument` shows in the compiler's note as the name of the argument.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "../executors.hpp"
#include "../views/not_a_view.hpp"
#include "../numeric.hpp"
#include "../problem/options.hpp"
#include "../views/storage_of.hpp"
#include "../views/tensor_view.hpp"

namespace aft::detail {

/// Names of arguments for the compiler's notes.
enum class arg : std::uint8_t {
  q,
  k,
  v,
  y,
  w,
  u,
  factor_v,
  filter,
  dy,
  dq,
  dk,
  dv,
  dbias,
  dfilter,
  r,
  noise,
  gain,
  shift,
  out,
  dout,
  dr,
  dgain,
  dshift
};

template <class V>
inline constexpr bool is_no_grad = std::is_same_v<std::remove_cvref_t<V>, no_grad_t>;

/// The executor that a call without one gets; `v` decides, since every call reads it.
template <class V>
struct executor_for {
  using type = cpu;
};
template <class T, std::size_t Rank, class Space>
struct executor_for<tensor_view<T, Rank, Space>> {
  using type = default_executor_t<Space>;
};

/// What an executor-less overload must not mistake for its first tensor.
template <class Q>
concept not_executor = !operator_executor<Q>;

/// A number of the caller's, of whatever type: a parameter of type double would leave an int to the templates that
/// explain calls which fit nothing.
template <class A>
concept plain_number = std::is_arithmetic_v<A>;

/// What an operator must not mistake for its last tensor: where an argument is missing, the options move up.
template <class A>
concept operand = !std::is_same_v<A, options>;

/// What is wrong with the type of an argument. `told`: it had its message elsewhere.
enum class fault : std::uint8_t {
  none,
  told,
  no_view,
  host_view_with_cuda,
  device_view_with_cpu,
  foreign,
  rank,
  type,
  mixed,
  constant,
  bias_type,
  function_on_device,
  row_function,
  row_throws,
  gradient_function,
  gradient_throws,
  gradient_stored
};
struct finding {
  arg where = arg::q;
  fault what = fault::none;
};

/// The first of several findings: one message a call, and not one for every argument that shares a mistake.
constexpr finding first_of(std::initializer_list<finding> all) {
  for (const finding& f : all) {
    if (f.what != fault::none) return f;
  }
  return {};
}

/// A view at all, in the space of the executor. Looking and telling are apart, because compilers print a line or three
/// for every function between the call and the message.
template <arg Argument, class E, class V>
constexpr finding find_view() {
  if constexpr (is_refused<V>) {
    return {Argument, fault::told};
  } else if constexpr (!is_tensor_view<V>) {
    return {Argument, fault::no_view};
  } else {
    constexpr bool on_device = std::is_same_v<typename V::space, device_space>;
    if (std::is_same_v<runs_on_t<E>, cuda> && !on_device) return {Argument, fault::host_view_with_cuda};
    if (std::is_same_v<runs_on_t<E>, cpu> && on_device) return {Argument, fault::device_view_with_cpu};
    return {Argument, foreign_storage<typename V::element_type> ? fault::foreign : fault::none};
  }
}

/// A tensor of the call's element type T with a rank from Low to High.
template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr finding find_input() {
  constexpr finding view = find_view<Argument, E, V>();
  if constexpr (view.what == fault::none) {
    if (V::rank() < Low || V::rank() > High) return {Argument, fault::rank};
    if (!element<typename V::value_type>) return {Argument, fault::type};
    if (!std::is_same_v<typename V::value_type, T>) return {Argument, fault::mixed};
  }
  return view;
}

template <arg Argument, class V>
constexpr finding find_mutable() {
  return {Argument, std::is_const_v<typename V::element_type> ? fault::constant : fault::none};
}

template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr finding find_output() {
  constexpr finding input = find_input<Argument, E, T, Low, High, V>();
  if constexpr (input.what == fault::none) {
    return find_mutable<Argument, V>();
  } else {
    return input;
  }
}

template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr finding find_gradient() {
  if constexpr (is_no_grad<V>) {
    return {};
  } else {
    return find_output<Argument, E, T, Low, High, V>();
  }
}

/// A tensor of position biases: the data's type, or the type arithmetic is done in, since a bias is often kept in float
/// beside 16-bit data.
template <arg Argument, class E, class T, class V>
constexpr finding find_bias_tensor() {
  constexpr finding view = find_view<Argument, E, V>();
  if constexpr (view.what == fault::none) {
    using value = typename V::value_type;
    if (!std::is_same_v<value, T> && !std::is_same_v<value, compute_t<T>>) return {Argument, fault::bias_type};
  }
  return view;
}

/// False, with the message, for a finding that is one.
template <finding Found>
constexpr bool fits() {
  constexpr bool is_view = Found.what != fault::no_view, host_view_with_cuda = Found.what == fault::host_view_with_cuda,
                 device_view_with_cpu = Found.what == fault::device_view_with_cpu,
                 foreign = Found.what == fault::foreign, rank_fits = Found.what != fault::rank,
                 known_type = Found.what != fault::type, same_type = Found.what != fault::mixed,
                 is_mutable = Found.what != fault::constant, bias_type_fits = Found.what != fault::bias_type,
                 on_host = Found.what != fault::function_on_device, takes_row = Found.what != fault::row_function,
                 row_is_noexcept = Found.what != fault::row_throws, takes_dw = Found.what != fault::gradient_function,
                 gradient_is_noexcept = Found.what != fault::gradient_throws,
                 gradient_is_generated = Found.what != fault::gradient_stored;
  static_assert(is_view,
                "aft: this argument must be an aft::tensor_view; make one from a pointer, or from a matrix with "
                "aft::as_view; a gradient that is not wanted is aft::no_grad");
  static_assert(!host_view_with_cuda,
                "aft: a host view with aft::cuda: pass views of device memory, aft::tensor_view<T, Rank, "
                "aft::device_space>, or run the call with aft::cpu");
  static_assert(!device_view_with_cpu,
                "aft: a device view with aft::cpu: pass views of host memory, or run the call with aft::cuda");
  static_assert(!foreign,
                "aft: a view of another library's 16-bit type: pass aft::as_view(view), which shows the same memory "
                "as aft::half or aft::bfloat16");
  static_assert(
      rank_fits,
      "aft: wrong rank: sequences are (batch, time, channels) or (time, channels); a convolution alone takes rank 3, "
      "4 or 5, with a filter of rank 2, 3 or 4; gain and shift of aft::reparameterize are (H)");
  static_assert(known_type, "aft: the element type must be float, double, aft::half or aft::bfloat16");
  static_assert(same_type, "aft: mixed element types: q, k, v, y and their gradients must hold one type");
  static_assert(is_mutable, "aft: const output: this view is written, so its element type must not be const");
  static_assert(
      bias_type_fits,
      "aft: the element type of a bias or filter must be that of the data, or float (double for double data)");
  static_assert(on_host,
                "aft::cuda: an aft::generated_bias is made by a function of the host, which a device cannot call: use "
                "aft::cpu, or fill an aft::dense_bias, aft::factorized_bias or aft::banded_bias");
  static_assert(takes_row,
                "aft::generated_bias: f must be callable, as const, as f(aft::index_t b, aft::index_t h, aft::index_t "
                "t, aft::index_t s0, std::span<C> row) with C = float, or double for double data");
  static_assert(row_is_noexcept, "aft::generated_bias: f must be noexcept, as it is called on other threads");
  static_assert(takes_dw,
                "aft::generated_bias_gradient: f must be callable, as const, as f(aft::index_t part, aft::index_t b, "
                "aft::index_t h, aft::index_t t, aft::index_t s0, std::span<const C> dw) with C = float, or double "
                "for double data");
  static_assert(gradient_is_noexcept,
                "aft::generated_bias_gradient: f must be noexcept, as it is called on other threads");
  static_assert(gradient_is_generated,
                "aft: dbias of an aft::generated_bias must be an aft::generated_bias_gradient or aft::no_grad");
  return Found.what == fault::none;
}

template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr bool check_input() {
  return fits<find_input<Argument, E, T, Low, High, V>()>();
}
template <class V>
constexpr bool check_mutable() {
  return fits<find_mutable<arg::out, V>()>();
}
template <arg Argument, class E, class T, class V>
constexpr bool check_bias_tensor() {
  return fits<find_bias_tensor<Argument, E, T, V>()>();
}

/// The element type of a view; float for anything else, which check_view has refused by then.
template <class V>
struct value_of {
  using type = float;
};
template <class T, std::size_t Rank, class Space>
struct value_of<tensor_view<T, Rank, Space>> {
  using type = typename storage_of<std::remove_cv_t<T>>::type;  // check_view asks for as_view, and the rest fits then
};
template <class V>
using value_of_t = typename value_of<V>::type;

}  // namespace aft::detail
