// SPDX-License-Identifier: Apache-2.0
/// @file numeric.hpp  Storage types half and bfloat16, the run-time tag of a type, and the type arithmetic is done in.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "config.hpp"

namespace aft {

namespace detail {

[[gnu::always_inline]] constexpr float half_bits_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fu;
  const std::uint32_t fraction = h & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  // A subnormal half is a multiple of 2^-24, which a float holds exactly.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

[[gnu::always_inline]] constexpr std::uint16_t float_to_half_bits(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // keeps NaN a NaN, quiet
  } else if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000u) {
    const std::uint32_t rebased = magnitude - 0x38000000u;
    result = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
  } else if (magnitude >= 0x33000000u) {
    // Subnormal result: adding 0.5 aligns the value so that the float adder itself rounds to nearest even at 2^-24.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    result = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | result);
}

[[gnu::always_inline]] constexpr float bfloat16_bits_to_float(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

[[gnu::always_inline]] constexpr std::uint16_t float_to_bfloat16_bits(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace detail

/// IEEE binary16, a storage type: arithmetic happens in float. Conversion from float rounds to nearest even.
struct [[gnu::may_alias]] half {
  /// Sign, 5 bits of exponent, 10 of fraction.
  std::uint16_t bits = 0;
  half() = default;
  /// Rounds to nearest even; beyond 65504 and half a step, to infinity.
  [[gnu::always_inline]] constexpr explicit half(float f) : bits(detail::float_to_half_bits(f)) {}
  /// Exact.
  [[gnu::always_inline]] constexpr operator float() const { return detail::half_bits_to_float(bits); }
  /// The number with these bits.
  [[gnu::always_inline]] static constexpr half from_bits(std::uint16_t b) {
    half h;
    h.bits = b;
    return h;
  }
};

/// The upper half of a float, a storage type: arithmetic happens in float. Conversion rounds to nearest even.
struct [[gnu::may_alias]] bfloat16 {
  /// Sign, 8 bits of exponent, 7 of fraction.
  std::uint16_t bits = 0;
  bfloat16() = default;
  /// Rounds to nearest even.
  [[gnu::always_inline]] constexpr explicit bfloat16(float f) : bits(detail::float_to_bfloat16_bits(f)) {}
  /// Exact.
  [[gnu::always_inline]] constexpr operator float() const { return detail::bfloat16_bits_to_float(bits); }
  /// The number with these bits.
  [[gnu::always_inline]] static constexpr bfloat16 from_bits(std::uint16_t b) {
    bfloat16 h;
    h.bits = b;
    return h;
  }
};

static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);

/// Run-time name of an element type. Those from i16 on no call accepts: they have names so that an error can say what
/// came.
enum class dtype : std::uint8_t { f32, f64, f16, bf16, u8, i8, i32, i64, i16, u16, u32, u64, f80, other };

/// Integers by their size and sign, whatever they are called; bool is a byte of 0 or 1, which a mask may hold.
template <class T>
consteval dtype integer_dtype() {
  if constexpr (std::is_same_v<T, bool>) {
    return dtype::u8;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr dtype of_signed[] = {dtype::i8, dtype::i16, dtype::i32, dtype::i64};
    constexpr dtype of_unsigned[] = {dtype::u8, dtype::u16, dtype::u32, dtype::u64};
    constexpr std::size_t place = sizeof(T) == 1 ? 0 : (sizeof(T) == 2 ? 1 : (sizeof(T) == 4 ? 2 : 3));
    return std::is_signed_v<T> ? of_signed[place] : of_unsigned[place];
  } else {
    return dtype::other;
  }
}

/// The run-time name of a type.
template <class T>
inline constexpr dtype dtype_of = integer_dtype<T>();
/// @cond
template <>
inline constexpr dtype dtype_of<float> = dtype::f32;
template <>
inline constexpr dtype dtype_of<double> = dtype::f64;
template <>
inline constexpr dtype dtype_of<half> = dtype::f16;
template <>
inline constexpr dtype dtype_of<bfloat16> = dtype::bf16;
template <>
inline constexpr dtype dtype_of<long double> = dtype::f80;

// Tables, since a switch over this many types was a twentieth of a call on one position.
inline constexpr const char* names_of_types[] = {"float",  "double", "half",        "bfloat16",    "uint8",
                                                 "int8",   "int32",  "int64",       "int16",       "uint16",
                                                 "uint32", "uint64", "long double", "another type"};
inline constexpr std::uint8_t sizes_of_types[] = {4, 8, 2, 2, 1, 1, 4, 8, 2, 2, 4, 8, sizeof(long double), 1};
static_assert(static_cast<std::size_t>(dtype::other) + 1 == std::size(names_of_types));
static_assert(static_cast<std::size_t>(dtype::other) + 1 == std::size(sizes_of_types));
/// @endcond

/// As errors spell it: "float", "int64".
[[gnu::always_inline]] constexpr const char* name_of(dtype t) {
  return names_of_types[static_cast<std::size_t>(t)];
}
/// Bytes of an element.
[[gnu::always_inline]] constexpr index_t size_of(dtype t) {
  return sizes_of_types[static_cast<std::size_t>(t)];
}

/// The types that q, k, v, y and the biases may hold.
template <class T>
concept element =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

/// The type in which operations on T are carried out: double for double, float for everything else.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace aft
