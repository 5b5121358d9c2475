// SPDX-License-Identifier: Apache-2.0
/// @file type_checks.hpp  Mistakes that are visible in the types of a call, named at compile time.
///
/// Each check returns whether it passed, so that an operator can stop there: the compiler then prints the one message
/// and not the errors that follow from it. `Argument` shows in the compiler's note as the name of the argument.
#pragma once

#include <type_traits>

#include "executors.hpp"
#include "not_a_view.hpp"
#include "numeric.hpp"
#include "options.hpp"
#include "storage_of.hpp"
#include "tensor_view.hpp"

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
concept not_executor = !executor<Q>;

/// What an operator must not mistake for its last tensor: where an argument is missing, the options move up.
template <class A>
concept operand = !std::is_same_v<A, options>;

/// A view at all, in the space of the executor.
template <arg Argument, class E, class V>
constexpr bool check_view() {
  static_assert(
      is_tensor_view<V> || is_refused<V>,
      "aft: this argument must be an aft::tensor_view; make one from a pointer, or from a matrix with aft::as_view");
  if constexpr (is_tensor_view<V>) {
    constexpr bool on_device = std::is_same_v<typename V::space, device_space>;
    constexpr bool host_view_with_cuda = std::is_same_v<E, cuda> && !on_device;
    constexpr bool device_view_with_cpu = std::is_same_v<E, cpu> && on_device;
    static_assert(!host_view_with_cuda,
                  "aft: a host view with aft::cuda: pass views of device memory, aft::tensor_view<T, Rank, "
                  "aft::device_space>, or run the call with aft::cpu");
    static_assert(!device_view_with_cpu,
                  "aft: a device view with aft::cpu: pass views of host memory, or run the call with aft::cuda");
    constexpr bool foreign = foreign_storage<typename V::element_type>;
    static_assert(!foreign,
                  "aft: a view of another library's 16-bit type: pass aft::as_view(view), which shows the same memory "
                  "as aft::half or aft::bfloat16");
    return !host_view_with_cuda && !device_view_with_cpu && !foreign;
  } else {
    return false;
  }
}

/// A tensor of the call's element type T with a rank from Low to High.
template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr bool check_input() {
  if constexpr (check_view<Argument, E, V>()) {
    constexpr bool rank_fits = V::rank() >= Low && V::rank() <= High;
    constexpr bool known_type = element<typename V::value_type>;
    constexpr bool same_type = !known_type || std::is_same_v<typename V::value_type, T>;
    static_assert(
        rank_fits,
        "aft: wrong rank: sequences are (batch, time, channels) or (time, channels); a convolution takes rank 3, "
        "4 or 5 with a filter of rank 2, 3 or 4; gain and shift are (H)");
    static_assert(known_type, "aft: the element type must be float, double, aft::half or aft::bfloat16");
    static_assert(same_type, "aft: mixed element types: q, k, v, y and their gradients must hold one type");
    return rank_fits && known_type && same_type;
  } else {
    return false;
  }
}

template <class V>
constexpr bool check_mutable() {
  constexpr bool is_mutable = !std::is_const_v<typename V::element_type>;
  static_assert(is_mutable, "aft: const output: this view is written, so its element type must not be const");
  return is_mutable;
}

template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr bool check_output() {
  if constexpr (check_input<Argument, E, T, Low, High, V>()) {
    return check_mutable<V>();
  } else {
    return false;
  }
}

template <arg Argument, class E, class T, std::size_t Low, std::size_t High, class V>
constexpr bool check_gradient() {
  if constexpr (is_no_grad<V>) {
    return true;
  } else {
    return check_output<Argument, E, T, Low, High, V>();
  }
}

/// A tensor of position biases: the data's type, or the type arithmetic is done in, since a bias is often kept in float
/// beside 16-bit data.
template <arg Argument, class E, class T, class V>
constexpr bool check_bias_tensor() {
  if constexpr (check_view<Argument, E, V>()) {
    using value = typename V::value_type;
    constexpr bool type_fits = std::is_same_v<value, T> || std::is_same_v<value, compute_t<T>>;
    static_assert(
        type_fits,
        "aft: the element type of a bias or filter must be that of the data, or float (double for double data)");
    return type_fits;
  } else {
    return false;
  }
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
