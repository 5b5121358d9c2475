// SPDX-License-Identifier: Apache-2.0
/// @file scalars.hpp  Arithmetic of one thread, where C++ has another, leaves it open, or has none.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "launch.hpp"

namespace aft::ptx {

template <class To, class From>
To bits(From x) {
  return std::bit_cast<To>(x);
}

template <class T>
T neg_of(T x) {
  return static_cast<T>(0 - static_cast<std::uint64_t>(x));
}
template <class T>
T abs_of(T x) {
  return x < 0 ? neg_of(x) : x;
}

/// Undefined there, a trap here: the library never asks for it.
template <class T>
T quotient_of(T a, T b, int line) {
  if (b == 0) fail_at(line, "a division by zero");
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return neg_of(a);
  }
  return static_cast<T>(a / b);
}
template <class T>
T remainder_of(T a, T b, int line) {
  if (b == 0) fail_at(line, "a division by zero");
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}

template <class T>
T high_product(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    using wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>(static_cast<wide>(a) * static_cast<wide>(b) >> 64);
  } else {
    using wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(static_cast<wide>(a) * static_cast<wide>(b) >> 32);
  }
}

/// Of a number and NaN the number; -0 is below +0.
template <class T>
T minimum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return b;
    if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}
template <class T>
T maximum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return b;
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <class T>
T shifted_left(T x, std::uint32_t by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<std::uint64_t>(x) << by);
}
template <class T>
T shifted_right(T x, std::uint32_t by) {
  constexpr std::uint32_t width = 8 * sizeof(T);
  if (by >= width) return std::is_signed_v<T> && x < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(x >> by);
}

template <class T>
T reversed(T x) {
  T result = 0;
  for (std::size_t i = 0; i < 8 * sizeof(T); ++i) result = static_cast<T>(result << 1 | (x >> i & 1));
  return result;
}
/// How far the highest bit that is set would have to be shifted to be the first; all bits where there is none.
template <class T>
std::uint32_t leading_shift(T x) {
  return x == 0 ? 0xffffffffu : static_cast<std::uint32_t>(std::countl_zero(x));
}
template <class T>
T with_bits(T a, T b, std::uint32_t at, std::uint32_t count) {
  at &= 0xff;
  count &= 0xff;
  for (std::uint32_t i = 0; i < count && at + i < 8 * sizeof(T); ++i) {
    const T bit = T{1} << (at + i);
    b = static_cast<T>((a >> i & 1) != 0 ? b | bit : b & ~bit);
  }
  return b;
}

/// Of half and bfloat16 numbers, which are bits in 16-bit registers; to nearest, ties to even.
std::uint16_t to_half(float x);
float from_half(std::uint16_t x);
std::uint16_t to_bfloat16(float x);
/// To nearest, ties away from 0.
std::uint32_t to_tf32(float x);

template <class T>
T rzi(T x) {
  return std::trunc(x);
}
template <class T>
T rni(T x) {
  return std::nearbyint(x);
}
template <class T>
T rmi(T x) {
  return std::floor(x);
}
template <class T>
T rpi(T x) {
  return std::ceil(x);
}
/// Of a whole number: what does not fit becomes the nearest that does, NaN 0.
template <class To, class From>
To to_integer(From x) {
  constexpr From below = static_cast<From>(std::numeric_limits<To>::min());
  const From above = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  if (std::isnan(x)) return 0;
  if (x <= below) return std::numeric_limits<To>::min();
  return x >= above ? std::numeric_limits<To>::max() : static_cast<To>(x);
}

/// Within 2 units in the last place for divisors of 2^-126 to 2^126; beyond them 0, or NaN for infinities.
float quotient_approx(float a, float b);
/// Within 2^-22, relative.
float exp2_approx(float x);
/// Within 2^-22: absolute from 0.5 to 2, else relative.
float log2_approx(float x);
/// The upper 32 bits of a result within 2^-19, relative, without denormal numbers; the manual gives no bound.
double reciprocal_approx(double x);

}  // namespace aft::ptx
