// SPDX-License-Identifier: Apache-2.0
/// @file views/any_view.hpp  A view whose type, rank and space are run-time values: lets `options` be an aggregate.
#pragma once

#include <array>
#include <type_traits>

#include "not_a_view.hpp"
#include "../numeric.hpp"
#include "storage_of.hpp"
#include "tensor_view.hpp"

namespace aft {

/// A type-erased view of at most 8 axes. Converts from any tensor_view; empty by default. What it must hold is
/// checked when a call uses it: a wrong type, shape or space is a shape_error there.
///
/// A stride that no element lies behind, on an axis of extent 1 or in a view without elements, may be any number, also
/// one whose products overflow: NumPy and PyTorch leave there what they like. It is 0 here, and 1 on the last axis, as
/// contiguous channels have it, so that no check and no kernel has to know.
class any_view {
 public:
  /// The most axes that it holds.
  static constexpr std::size_t max_rank = 8;

  [[gnu::always_inline]] constexpr any_view() = default;

  /// The same memory, with its type, space and const as values.
  template <class T, std::size_t Rank, class Space>
  [[gnu::always_inline]] constexpr any_view(const tensor_view<T, Rank, Space>& v)
      : data_(const_cast<std::remove_cv_t<T>*>(v.data())),
        type_(dtype_of<typename storage_of<std::remove_cv_t<T>>::type>),
        set_(true),
        writable_(!std::is_const_v<T>),
        on_device_(std::is_same_v<Space, device_space>),
        rank_(Rank) {
    static_assert(Rank <= max_rank, "aft::any_view: at most 8 axes");
    bool none = false;
    for (std::size_t i = 0; i < Rank; ++i) {
      extents_[i] = v.extent(i);
      none |= v.extent(i) == 0;
    }
    for (std::size_t i = 0; i < Rank; ++i) {
      const index_t unused = i + 1 == Rank ? 1 : 0;
      strides_[i] = (none | (v.extent(i) == 1)) ? unused : v.stride(i);
    }
  }

  /// A tensor whose type, rank and space are values from the start, as other languages describe it: writable, of at
  /// most max_rank axes, row-major where strides are null.
  [[gnu::always_inline]] constexpr any_view(void* data, dtype type, std::size_t rank, const index_t* extents,
                                            const index_t* strides, bool on_device = false)
      : data_(data), type_(type), set_(true), writable_(true), on_device_(on_device), rank_(rank) {
    bool none = false;
    for (std::size_t i = 0; i < rank; ++i) {
      extents_[i] = extents[i];
      none |= extents[i] == 0;
    }
    // Unsigned, as in tensor_view: calls refuse extents whose product does not fit.
    std::uint64_t step = 1;
    for (std::size_t i = rank; i-- > 0;) {
      const index_t unused = i + 1 == rank ? 1 : 0;
      const index_t given = strides == nullptr ? static_cast<index_t>(step) : strides[i];
      strides_[i] = (none | (extents[i] == 1)) ? unused : given;
      step *= static_cast<std::uint64_t>(extents[i]);
    }
  }

  /// Of anything else: does not compile, and says why. What as_view has refused is passed over.
  template <detail::no_view X>
  constexpr any_view(const X&) {
    constexpr bool is_view = !detail::no_view<X>;
    static_assert(is_view,
                  "aft::options: this member takes an aft::tensor_view, not a container, pointer or matrix: write "
                  "aft::tensor_view<T, Rank>{pointer, {extents}}, or aft::as_view(matrix)");
  }
  /// @cond
  constexpr any_view(const detail::not_a_view&) {}
  template <class T, class Extent>
  constexpr any_view(T*, std::initializer_list<Extent>) {
    constexpr bool is_view = sizeof(Extent) == 0;
    static_assert(is_view,
                  "aft::options: a pointer and extents in braces do not make a view here: write "
                  "aft::tensor_view<T, Rank>{pointer, {extents}}");
  }

  /// @endcond

  /// True for a default-constructed view, the mark of an option that was not given.
  [[gnu::always_inline]] constexpr bool empty() const { return !set_; }
  /// The opposite of empty().
  [[gnu::always_inline]] constexpr explicit operator bool() const { return set_; }
  /// The element at index 0 of every axis.
  [[gnu::always_inline]] constexpr void* data() const { return data_; }
  /// The element type.
  [[gnu::always_inline]] constexpr dtype type() const { return type_; }
  /// False where it was made from a view of const.
  [[gnu::always_inline]] constexpr bool writable() const { return writable_; }
  /// True where it was made from a view in device_space.
  [[gnu::always_inline]] constexpr bool on_device() const { return on_device_; }
  /// The number of axes.
  [[gnu::always_inline]] constexpr std::size_t rank() const { return rank_; }
  /// The number of elements along an axis.
  [[gnu::always_inline]] constexpr index_t extent(std::size_t axis) const { return extents_[axis]; }
  /// The distance in elements from one index of an axis to the next.
  [[gnu::always_inline]] constexpr index_t stride(std::size_t axis) const { return strides_[axis]; }
  /// The same with only the first index of an axis.
  [[gnu::always_inline]] constexpr any_view first_of(std::size_t axis) const {
    any_view part = *this;
    part.extents_[axis] = 1;
    return part;
  }
  /// The same with `count` indices of an axis alone, from `first` on. Strides stay as they are.
  [[gnu::always_inline]] any_view part_of(std::size_t axis, index_t first, index_t count) const {
    any_view part = *this;
    part.extents_[axis] = count;
    if (data_ != nullptr) part.data_ = static_cast<std::byte*>(data_) + first * strides_[axis] * size_of(type_);
    return part;
  }

 private:
  void* data_ = nullptr;
  dtype type_ = dtype::other;
  bool set_ = false;
  bool writable_ = false;
  bool on_device_ = false;
  std::size_t rank_ = 0;
  std::array<index_t, max_rank> extents_{};
  std::array<index_t, max_rank> strides_{};
};

}  // namespace aft
