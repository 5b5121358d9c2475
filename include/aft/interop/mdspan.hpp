// SPDX-License-Identifier: Apache-2.0
/// @file mdspan.hpp  aft::as_view for std::mdspan and whatever has its shape: Kokkos' mdspan, a caller's own.
///
/// An mdspan is recognised by the members that it has; its header is not included here and need not exist.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <aft/core/errors.hpp>
#include <aft/core/views/storage_of.hpp>
#include <aft/core/views/tensor_view.hpp>

namespace aft {

namespace detail {

/// An accessor that gives no references: what std::linalg::scaled makes lies behind a pointer as well, to other
/// numbers.
template <class M>
concept computes_elements = requires {
  typename M::reference;
}
&&!std::is_reference_v<typename M::reference>;

/// A multidimensional view by C++23's names whose elements lie behind a pointer. One with an accessor that computes
/// its elements has no memory that a view could show.
template <class M>
concept mdspan_like = requires(const M& m) {
  typename M::element_type;
  { M::rank() } -> std::convertible_to<std::size_t>;
  { m.extent(0) } -> std::convertible_to<index_t>;
  { m.stride(0) } -> std::convertible_to<index_t>;
  { m.data_handle() } -> std::convertible_to<typename M::element_type*>;
}
&&(M::rank() >= 1) && !is_tensor_view<M> && !computes_elements<M>;

}  // namespace detail

/// The memory of an mdspan as a view of the same rank, extents and strides (in elements), whatever its layout:
/// layout_right, layout_left, layout_stride, a submdspan. An mdspan of const gives a view of const, one of another
/// library's 16-bit type (storage_of) a view of aft::half or aft::bfloat16. Device memory, which an mdspan does not
/// tell from the host's, is as_view<aft::device_space>(m). Nothing is copied: the view is valid as long as the memory
/// is. Throws shape_error if the mapping has no strides. Cost: O(rank).
template <class Space = host_space, detail::mdspan_like M>
inline auto as_view(const M& m) {
  if constexpr (requires {
                  { m.is_strided() } -> std::convertible_to<bool>;
                }) {
    if (!m.is_strided()) throw shape_error("aft::as_view: expected an mdspan with strides, got a layout without any");
  }
  constexpr std::size_t rank = M::rank();
  std::array<index_t, rank> extents{}, strides{};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    // extent and stride count in mdspan's own rank_type, which is another type in some implementations.
    const auto own = static_cast<decltype(M::rank())>(axis);
    extents[axis] = static_cast<index_t>(m.extent(own));
    strides[axis] = static_cast<index_t>(m.stride(own));
  }
  typename M::element_type* const data = m.data_handle();
  using T = detail::stored_t<typename M::element_type>;
  return tensor_view<T, rank, Space>{detail::stored_pointer(data), extents, strides};
}

}  // namespace aft
