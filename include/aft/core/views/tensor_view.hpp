// SPDX-License-Identifier: Apache-2.0
/// @file views/tensor_view.hpp  A pointer with extents and strides: the vocabulary of every call.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

#include "../config.hpp"

namespace aft {

/// A slice argument of tensor_view::subview that keeps a whole axis.
struct all_t {};
/// The value to pass: v.subview(0, aft::all, aft::range{0, 8}).
inline constexpr all_t all{};

/// A slice argument of tensor_view::subview: the half-open interval [begin, end) of an axis.
struct range {
  index_t begin = 0;  ///< The first index kept.
  index_t end = 0;    ///< One past the last index kept.
};

namespace detail {

// Extents and strides come in braces with whatever integer type the caller counts in. An array parameter would
// refuse std::size_t there as narrowing, so the list is received here.
template <std::size_t Rank>
struct dims {
  std::array<index_t, Rank> value{};
  [[gnu::always_inline]] constexpr dims(const std::array<index_t, Rank>& a) : value(a) {}
  template <class... Index>
  requires(sizeof...(Index) == Rank && (std::convertible_to<Index, index_t> && ...))
      [[gnu::always_inline]] constexpr dims(Index... i)
      : value{static_cast<index_t>(i)...} {}
};

template <class S>
inline constexpr bool keeps_axis = !std::is_convertible_v<S, index_t>;

}  // namespace detail

/// A non-owning strided view of Rank axes, trivially copyable. Strides are in ELEMENTS and may be anything: padded,
/// transposed, negative; zero (broadcast) for inputs. Offsets are computed in 64 bits. Converts from T to const T.
/// Cost of every member: O(Rank).
template <class T, std::size_t Rank, class Space = host_space>
class tensor_view {
  static_assert(Rank >= 1, "aft::tensor_view: a view has at least one axis");

 public:
  using element_type = T;                   ///< With its const, as in std::span.
  using value_type = std::remove_cv_t<T>;   ///< Without it.
  using space = Space;                      ///< Where the memory lies: host_space or device_space.
  using array = std::array<index_t, Rank>;  ///< Extents or strides.
  /// The number of axes.
  [[gnu::always_inline]] static constexpr std::size_t rank() { return Rank; }

  /// Empty: null data, all extents zero.
  [[gnu::always_inline]] constexpr tensor_view() = default;

  /// Row-major: the last axis is contiguous.
  [[gnu::always_inline]] constexpr tensor_view(T* data, detail::dims<Rank> extents)
      : data_(data), extents_(extents.value) {
    // Unsigned, here and in size(): extents beside a 0 may have a product that does not fit, and calls refuse others.
    std::uint64_t step = 1;
    for (std::size_t i = Rank; i-- > 0;) {
      strides_[i] = static_cast<index_t>(step);
      step *= static_cast<std::uint64_t>(extents_[i]);
    }
  }

  /// Any strides, in elements.
  [[gnu::always_inline]] constexpr tensor_view(T* data, detail::dims<Rank> extents, detail::dims<Rank> strides)
      : data_(data), extents_(extents.value), strides_(strides.value) {}

  /// A view to read of a view to write.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>)
      [[gnu::always_inline]] constexpr tensor_view(const tensor_view<U, Rank, Space>& other)
      : data_(other.data()), extents_(other.extents()), strides_(other.strides()) {}

  /// The element at index 0 of every axis; not the lowest address where a stride is negative.
  [[gnu::always_inline]] constexpr T* data() const { return data_; }
  /// The number of elements along an axis.
  [[gnu::always_inline]] constexpr index_t extent(std::size_t axis) const { return extents_[axis]; }
  /// The distance in elements from one index of an axis to the next.
  [[gnu::always_inline]] constexpr index_t stride(std::size_t axis) const { return strides_[axis]; }
  /// Of all axes.
  [[gnu::always_inline]] constexpr const array& extents() const { return extents_; }
  /// Of all axes, in elements.
  [[gnu::always_inline]] constexpr const array& strides() const { return strides_; }

  /// The number of elements, the product of the extents.
  [[gnu::always_inline]] constexpr index_t size() const {
    std::uint64_t n = 1;
    for (index_t e : extents_) n *= static_cast<std::uint64_t>(e);
    return static_cast<index_t>(n);
  }

  /// The element at an index of every axis. Indices are not checked.
  template <class... Index>
  requires(sizeof...(Index) == Rank && (std::convertible_to<Index, index_t> && ...)) [[gnu::always_inline]] constexpr T&
  operator()(Index... index) const {
    const array at{static_cast<index_t>(index)...};
    index_t offset = 0;
    for (std::size_t i = 0; i < Rank; ++i) offset += at[i] * strides_[i];
    return data_[offset];
  }

  /// Reorders the axes: axis i of the result is axis order[i] of this view. A channels-first (B, d, T) tensor
  /// becomes the (B, T, d) view that the calls take by permute({0, 2, 1}). `order` must be a permutation.
  [[gnu::always_inline]] constexpr tensor_view permute(detail::dims<Rank> order) const {
    tensor_view result = *this;
    for (std::size_t i = 0; i < Rank; ++i) {
      const auto from = static_cast<std::size_t>(order.value[i]);
      result.extents_[i] = extents_[from];
      result.strides_[i] = strides_[from];
    }
    return result;
  }

  /// The block of the given extents that starts at `offsets`; the rank stays.
  [[gnu::always_inline]] constexpr tensor_view subview(detail::dims<Rank> offsets, detail::dims<Rank> extents) const {
    tensor_view result = *this;
    index_t offset = 0;
    for (std::size_t i = 0; i < Rank; ++i) offset += distance(i, offsets.value[i]);
    result.extents_ = extents.value;
    result.data_ = shifted(offset);
    return result;
  }

  /// One slice per axis: an integer takes one index and drops the axis, aft::range keeps a part, aft::all the whole.
  template <class... S>
  requires(sizeof...(S) == Rank && (detail::keeps_axis<S> || ...))
      [[gnu::always_inline]] constexpr auto subview(S... slices) const {
    constexpr std::size_t kept = (std::size_t{0} + ... + (detail::keeps_axis<S> ? 1u : 0u));
    std::array<index_t, kept> extents{};
    std::array<index_t, kept> strides{};
    index_t offset = 0;
    std::size_t axis = 0;
    std::size_t out = 0;
    const auto take = [&](auto slice) __attribute__((always_inline)) {
      if constexpr (std::is_same_v<decltype(slice), all_t>) {
        extents[out] = extents_[axis];
        strides[out++] = strides_[axis];
      } else if constexpr (std::is_same_v<decltype(slice), range>) {
        extents[out] = slice.end - slice.begin;
        strides[out++] = strides_[axis];
        offset += distance(axis, slice.begin);
      } else {
        offset += distance(axis, static_cast<index_t>(slice));
      }
      ++axis;
    };
    (take(slices), ...);
    return tensor_view<T, kept, Space>{shifted(offset), extents, strides};
  }

 private:
  /// How far index `at` lies from index 0. Where no element lies further, the stride may be any number and is not used.
  [[gnu::always_inline]] constexpr index_t distance(std::size_t axis, index_t at) const {
    return extents_[axis] == 1 || size() == 0 ? 0 : at * strides_[axis];
  }
  [[gnu::always_inline]] constexpr T* shifted(index_t offset) const {
    return data_ == nullptr ? nullptr : data_ + offset;
  }

  T* data_ = nullptr;
  array extents_{};
  array strides_{};
};

/// True of every tensor_view.
template <class V>
inline constexpr bool is_tensor_view = false;
/// @cond
template <class T, std::size_t R, class S>
inline constexpr bool is_tensor_view<tensor_view<T, R, S>> = true;
/// @endcond

}  // namespace aft
