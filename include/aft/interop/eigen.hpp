// SPDX-License-Identifier: Apache-2.0
/// @file eigen.hpp  aft::as_view for Eigen's matrices, arrays, blocks, maps and tensors.
///
/// Eigen is recognised by the members that its types have and is not included here: the order of includes does not
/// matter, and whoever does not use Eigen does not pay for it.
#pragma once

#include <aft/core/views/storage_of.hpp>
#include <aft/core/views/tensor_view.hpp>

namespace aft {

namespace detail {

/// A dense Eigen expression whose coefficients lie in memory: Matrix, Array, Map, Ref, Block.
template <class M>
concept eigen_dense = requires(M& m) {
  { m.rows() } -> std::convertible_to<index_t>;
  { m.cols() } -> std::convertible_to<index_t>;
  { m.rowStride() } -> std::convertible_to<index_t>;
  { m.colStride() } -> std::convertible_to<index_t>;
  *m.data();
  std::remove_cvref_t<M>::IsVectorAtCompileTime;
};

/// A Tensor, TensorFixedSize or TensorMap of Eigen's unsupported tensor module.
template <class M>
concept eigen_tensor = requires(M& m) {
  { m.dimension(0) } -> std::convertible_to<index_t>;
  *m.data();
  std::remove_cvref_t<M>::NumDimensions;
  std::remove_cvref_t<M>::Layout;
};

/// An object that owns its memory, of which a view must not be taken when it is about to die: const as well, as what
/// eval() returns is.
template <class M>
concept eigen_owner = requires(std::remove_cvref_t<M>& m) {
  m.conservativeResize(1, 1);
}
|| (eigen_tensor<M> && requires(std::remove_cvref_t<M> & m) {
  // A map is what can be made of a pointer; a tensor of fixed size is made of nothing.
  requires !std::is_constructible_v<std::remove_cvref_t<M>, decltype(m.data()), decltype(m.dimensions())>;
});

template <class M>
using eigen_element_t = std::remove_pointer_t<decltype(std::declval<std::remove_reference_t<M>&>().data())>;

}  // namespace detail

/// The memory of an Eigen matrix, array, map or block as (rows, cols), whatever its storage order and strides; of a
/// vector known as one at compile time as rank 1. A const object gives a view of const, one of Eigen::half or
/// Eigen::bfloat16 a view of aft::half or aft::bfloat16. Nothing is copied: the view
/// is valid as long as the object's memory is. Cost: O(1).
template <detail::eigen_dense M>
[[gnu::always_inline]] inline auto as_view(M&& m) {
  static_assert(std::is_lvalue_reference_v<M> || !detail::eigen_owner<M>,
                "aft::as_view: this matrix is a temporary, its memory is gone before the view can be used");
  using T = detail::stored_t<detail::eigen_element_t<M>>;
  if constexpr (std::remove_cvref_t<M>::IsVectorAtCompileTime) {
    return tensor_view<T, 1>{detail::stored_pointer(m.data()), {m.size()}, {m.innerStride()}};
  } else {
    return tensor_view<T, 2>{detail::stored_pointer(m.data()), {m.rows(), m.cols()}, {m.rowStride(), m.colStride()}};
  }
}

/// The memory of an Eigen tensor as a view of the same rank and order of axes, in either storage order.
template <detail::eigen_tensor M>
[[gnu::always_inline]] inline auto as_view(M&& m) {
  static_assert(std::is_lvalue_reference_v<M> || !detail::eigen_owner<M>,
                "aft::as_view: this tensor is a temporary, its memory is gone before the view can be used");
  using tensor = std::remove_cvref_t<M>;
  constexpr auto rank = static_cast<std::size_t>(tensor::NumDimensions);
  // Eigen::RowMajor is 1 and Eigen::ColMajor 0.
  constexpr bool row_major = static_cast<int>(tensor::Layout) == 1;
  // Tensors and maps of them take the axis as different integer types; a constant converts to either.
  const auto extents = [&]<std::size_t... Axis>(std::index_sequence<Axis...>) {
    return std::array<index_t, rank>{static_cast<index_t>(m.dimension(Axis))...};
  }
  (std::make_index_sequence<rank>{});
  std::array<index_t, rank> strides{};
  index_t step = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t axis = row_major ? rank - 1 - i : i;
    strides[axis] = step;
    step *= extents[axis];
  }
  using T = detail::stored_t<detail::eigen_element_t<M>>;
  return tensor_view<T, rank>{detail::stored_pointer(m.data()), extents, strides};
}

}  // namespace aft
