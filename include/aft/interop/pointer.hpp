// SPDX-License-Identifier: Apache-2.0
/// @file pointer.hpp  aft::as_view for plain pointers, and for views of other libraries' 16-bit types.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <aft/core/views/storage_of.hpp>
#include <aft/core/views/tensor_view.hpp>

namespace aft {

namespace detail {

// As an element of a list in braces: it takes whatever integers the caller counts in, side by side, and the number of
// elements becomes the rank. With an array of index_t, std::size_t would be refused as narrowing.
struct count {
  index_t value = 0;
  template <std::convertible_to<index_t> Integer>
  [[gnu::always_inline]] constexpr count(Integer i) : value(static_cast<index_t>(i)) {}
};

template <std::size_t Rank>
[[gnu::always_inline]] constexpr std::array<index_t, Rank> counted(const count (&list)[Rank]) {
  std::array<index_t, Rank> result{};
  for (std::size_t i = 0; i < Rank; ++i) result[i] = list[i].value;
  return result;
}

// What a view can be of: void has no elements, and a function is no memory.
template <class T>
concept viewable = std::is_object_v<T> && !std::is_volatile_v<T>;

template <class T, std::size_t Rank, class Space>
using stored_view = tensor_view<stored_t<T>, Rank, Space>;

}  // namespace detail

/// A view as one that the calls take: of another library's 16-bit type (storage_of says of which) the view of
/// aft::half or aft::bfloat16 over the same memory, with the same extents, strides, space and const; any other view is
/// its own view, so that generic code may call as_view on anything. Nothing is copied. Cost: O(Rank).
///
///     aft::tensor_view<const __half, 3, aft::device_space> q{pointer, {B, T, d}};
///     aft::simple(aft::as_view(q), ...);
template <class T, std::size_t Rank, class Space>
[[gnu::always_inline]] constexpr detail::stored_view<T, Rank, Space> as_view(const tensor_view<T, Rank, Space>& v) {
  if constexpr (detail::foreign_storage<T>) {
    return {detail::stored_pointer(v.data()), v.extents(), v.strides()};
  } else {
    return v;
  }
}

/// The memory behind a pointer, row-major, with the extents in braces: as_view(pointer, {B, T, d}). A pointer to
/// another library's 16-bit type gives a view of aft::half or aft::bfloat16, one to const a view of const; device
/// memory is as_view<aft::device_space>(pointer, {B, T, d}). Nothing is copied. Cost: O(rank).
template <class Space = host_space, detail::viewable T, std::size_t Rank>
[[gnu::always_inline]] constexpr detail::stored_view<T, Rank, Space> as_view(T* data,
                                                                             const detail::count (&extents)[Rank]) {
  return {detail::stored_pointer(data), detail::counted(extents)};
}

/// The same with strides, in elements: as_view(pointer, {B, T, d}, {sb, st, sc}).
template <class Space = host_space, detail::viewable T, std::size_t Rank>
[[gnu::always_inline]] constexpr detail::stored_view<T, Rank, Space> as_view(T* data,
                                                                             const detail::count (&extents)[Rank],
                                                                             const detail::count (&strides)[Rank]) {
  return {detail::stored_pointer(data), detail::counted(extents), detail::counted(strides)};
}

/// The same with extents that another view has: as_view(pointer, q.extents()).
template <class Space = host_space, detail::viewable T, std::size_t Rank>
[[gnu::always_inline]] constexpr detail::stored_view<T, Rank, Space> as_view(T* data,
                                                                             const std::array<index_t, Rank>& extents) {
  return {detail::stored_pointer(data), extents};
}

/// The same with extents and strides of another view: as_view(pointer, q.extents(), q.strides()).
template <class Space = host_space, detail::viewable T, std::size_t Rank>
[[gnu::always_inline]] constexpr detail::stored_view<T, Rank, Space> as_view(T* data,
                                                                             const std::array<index_t, Rank>& extents,
                                                                             const std::array<index_t, Rank>& strides) {
  return {detail::stored_pointer(data), extents, strides};
}

}  // namespace aft
