// SPDX-License-Identifier: Apache-2.0
/// @file integers.hpp  Arithmetic of sizes, in the words that blocked loops use.
#pragma once

#include <aft/core/config.hpp>

#include <concepts>
#include <type_traits>

namespace aft {

/// Two integer types that one sign rule serves.
template <class B, class A>
concept same_signedness = std::integral<A> && std::integral<B> &&(std::is_signed_v<A> == std::is_signed_v<B>);

// Not std's: those take one type, and windows.h makes macros of their names. Only for integers: which operand is right
// for NaN is a question that a kernel answers for itself.

template <class A, same_signedness<A> B>
AFT_ALSO_ON_DEVICE constexpr std::common_type_t<A, B> min_of(A a, B b) {
  return b < a ? b : a;
}
template <class A, same_signedness<A> B>
AFT_ALSO_ON_DEVICE constexpr std::common_type_t<A, B> max_of(A a, B b) {
  return a < b ? b : a;
}

/// The number of parts of `size` that n takes, for n >= 0 and size > 0.
template <class A, same_signedness<A> B>
AFT_ALSO_ON_DEVICE constexpr std::common_type_t<A, B> ceil_div(A n, B size) {
  return (n + size - 1) / size;
}

/// The least multiple of `size` that is n or more, for n >= 0 and size > 0.
template <class A, same_signedness<A> B>
AFT_ALSO_ON_DEVICE constexpr std::common_type_t<A, B> round_up(A n, B size) {
  return ceil_div(n, size) * size;
}

}  // namespace aft
