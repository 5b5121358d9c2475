// SPDX-License-Identifier: Apache-2.0
/// @file views/not_a_view.hpp  What stands where a view belongs, and the one message that it gets.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "tensor_view.hpp"

namespace aft {

class any_view;

namespace detail {

/// Takes the place of a view once a message has been given, so that no second one follows from it.
struct not_a_view {};
template <class V>
inline constexpr bool is_refused = std::is_same_v<std::remove_cvref_t<V>, not_a_view>;

template <class T, std::size_t Rank, class Space>
void take_view(const tensor_view<T, Rank, Space>&);

/// Neither a view, nor derived from one, nor something that knows how to become an any_view.
template <class X>
concept no_view = !std::is_same_v<std::remove_cvref_t<X>, any_view> && !is_refused<X> && !requires(const X& x) {
  detail::take_view(x);
}
&&!requires(const X& x) {
  x.operator any_view();
};

/// An Eigen expression: sizes, but coefficients that are computed when they are asked for.
template <class X>
concept eigen_expression = requires(const X& x) {
  x.rows();
  x.cols();
  x.eval();
};

/// OpenCV's images, by the members that they have.
template <class X>
concept image_matrix = requires(const X& x) {
  x.rows + x.cols;
  x.step;
  x.data;
};

/// Elements in a row without a shape: a container, an array, a pointer.
template <class X>
concept shapeless = std::is_pointer_v<std::remove_cvref_t<X>> || std::is_array_v<std::remove_cvref_t<X>> ||
    requires(const X& x) {
  x.data();
  x.size();
};

/// Fails to compile with the message for an X that is asked for its view. The names of the constants are what clang++
/// shows before the message.
template <class X>
constexpr void refuse_as_view() {
  constexpr bool expression = eigen_expression<X>, image = !expression && image_matrix<X>,
                 without_shape = !expression && !image && shapeless<X>;
  constexpr bool lies_in_memory = !expression, is_view_of_image = !image, has_shape = !without_shape,
                 is_known = expression || image || without_shape;
  static_assert(lies_in_memory,
                "aft::as_view: an expression has no memory that a view could show: evaluate it first, "
                "auto m = (a + b).eval(); aft::as_view(m)");
  static_assert(is_view_of_image,
                "aft::as_view: a cv::Mat does not know its element type: write "
                "aft::as_view(m.ptr<float>(), {m.rows, m.cols}, {m.step1(), 1})");
  static_assert(has_shape,
                "aft::as_view: a container, array or pointer has no shape: write aft::as_view(x.data(), {B, T, d})");
  static_assert(is_known,
                "aft::as_view takes Eigen matrices, maps, blocks and tensors, mdspan and aft::tensor_view; of anything "
                "else write aft::as_view(pointer, {B, T, d}, {strides, in, elements})");
}

/// Converts from everything, by a user's conversion: a function that takes it is chosen when no other fits.
struct refused_view {
  template <class X>
  constexpr refused_view(const X&) {
    refuse_as_view<X>();
  }
};

struct refused_extents {
  template <class X>
  requires(!std::is_pointer_v<std::decay_t<const X&>>) constexpr refused_extents(const X&) {
    constexpr bool is_pointer = sizeof(X) == 0;
    static_assert(is_pointer, "aft::as_view: extents go with a pointer: write aft::as_view(x.data(), {B, T, d})");
  }
};

}  // namespace detail

/// Of everything that has no view: does not compile, and says why.
constexpr detail::not_a_view as_view(const detail::refused_view&) {
  return {};
}
template <class Space>
constexpr detail::not_a_view as_view(const detail::refused_view&) {
  return {};
}
/// Extents go with a pointer.
template <class Extent>
constexpr detail::not_a_view as_view(const detail::refused_extents&, std::initializer_list<Extent>) {
  return {};
}

}  // namespace aft
