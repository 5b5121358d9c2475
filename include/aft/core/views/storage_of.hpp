// SPDX-License-Identifier: Apache-2.0
/// @file views/storage_of.hpp  Which storage type of ours has the bits of another library's 16-bit type.
///
/// No header of theirs is included here: a built-in type is asked for its bits, a class for its numeric limits, and
/// CUDA's two, of which the standard library knows nothing, by name.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "../numeric.hpp"

struct __half;         // NOLINT(bugprone-reserved-identifier): CUDA's names, as cuda_fp16.h itself declares them
struct __nv_bfloat16;  // NOLINT(bugprone-reserved-identifier)

namespace aft {

namespace detail {

/// Two bytes that are none of the language's classes, integers and so on: _Float16, __bf16, __fp16 and what <stdfloat>
/// calls them. Each compiler has others of them, under macros of its own, so that they are told by exclusion. A vector
/// of bytes has elements, they have none.
template <class T>
concept built_in_16 = std::is_object_v<T> && !std::is_class_v<T> && !std::is_union_v<T> && !std::is_enum_v<T> &&
                      !std::is_integral_v<T> && !std::is_array_v<T> && sizeof(T) == 2 && !requires(T x) {
  x[0];
};

/// A class of two bytes that states its precision where the standard library's types do.
template <class T>
concept class_16 = std::is_class_v<T> && requires {
  sizeof(T);
} && sizeof(T) == 2 && std::numeric_limits<T>::is_specialized && !std::numeric_limits<T>::is_integer;

template <class T>
constexpr auto find_storage() {
  if constexpr (std::is_same_v<T, __half>) {
    return std::type_identity<half>{};
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return std::type_identity<bfloat16>{};
  } else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
    return std::type_identity<T>{};
  } else if constexpr (built_in_16<T>) {
    if constexpr (requires(float f) { static_cast<T>(f); }) {
      // 1 is exact in either, and an integer type of some extension has neither of the patterns.
      constexpr auto one = std::bit_cast<std::uint16_t>(static_cast<T>(1.0F));
      if constexpr (one == half(1.0F).bits) {
        return std::type_identity<half>{};
      } else if constexpr (one == bfloat16(1.0F).bits) {
        return std::type_identity<bfloat16>{};
      } else {
        return std::type_identity<T>{};
      }
    } else {
      return std::type_identity<bfloat16>{};  // __bf16 of the compilers that can move it but not convert it
    }
  } else if constexpr (class_16<T>) {
    using limits = std::numeric_limits<T>;
    if constexpr (limits::digits == 11 && limits::max_exponent == 16) {
      return std::type_identity<half>{};
    } else if constexpr (limits::digits == 8 && limits::max_exponent == 128) {
      return std::type_identity<bfloat16>{};
    } else {
      return std::type_identity<T>{};
    }
  } else {
    return std::type_identity<T>{};
  }
}

}  // namespace detail

/// The type as which memory of T objects is read and written: aft::half or aft::bfloat16 for another library's 16-bit
/// floating-point type, T itself for everything else. Known are the compiler's and the standard library's (_Float16,
/// __bf16, std::float16_t, std::bfloat16_t), CUDA's __half and __nv_bfloat16, and any class of two bytes for which
/// std::numeric_limits says 11 digits and a largest exponent of 16, or 8 and 128: Eigen::half and Eigen::bfloat16,
/// c10::Half and c10::BFloat16. Others are added by whoever uses them:
///
///     template <> struct aft::storage_of<my::half> { using type = aft::half; };
template <class T>
struct storage_of {
  /// The type that is read.
  using type = typename decltype(detail::find_storage<T>())::type;
};

namespace detail {

/// The same with the const of T.
template <class T>
struct stored {
  using type = typename storage_of<T>::type;
};
template <class T>
struct stored<const T> {
  using type = const typename storage_of<T>::type;
};
template <class T>
using stored_t = typename stored<T>::type;

/// A type whose memory is read as that of another.
template <class T>
concept foreign_storage = std::is_object_v<T> && !std::is_same_v<T, stored_t<T>>;

/// `data` as what it is read as. The types of storage may alias (numeric.hpp), so that this is all it takes.
template <class T>
[[gnu::always_inline]] constexpr stored_t<T>* stored_pointer(T* data) {
  if constexpr (foreign_storage<T>) {
    static_assert(sizeof(T) == sizeof(stored_t<T>) && alignof(T) >= alignof(stored_t<T>),
                  "aft::storage_of: a type is read as one of the same size");
    return reinterpret_cast<stored_t<T>*>(data);
  } else {
    return data;
  }
}

}  // namespace detail

}  // namespace aft
