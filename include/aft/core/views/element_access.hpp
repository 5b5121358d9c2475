// SPDX-License-Identifier: Apache-2.0
/// @file views/element_access.hpp  One element of a type-erased tensor as a double: where speed does not matter.
#pragma once

#include "../numeric.hpp"

namespace aft {
inline namespace AFT_ISA {

/// Element `offset` of memory that holds `type`. Exact: double holds every value of the other types.
inline double load_element(const void* data, dtype type, index_t offset) {
  switch (type) {
    case dtype::f32: return static_cast<double>(static_cast<const float*>(data)[offset]);
    case dtype::f64: return static_cast<const double*>(data)[offset];
    case dtype::f16: return static_cast<double>(static_cast<float>(static_cast<const half*>(data)[offset]));
    case dtype::bf16: return static_cast<double>(static_cast<float>(static_cast<const bfloat16*>(data)[offset]));
    case dtype::u8: return static_cast<double>(static_cast<const std::uint8_t*>(data)[offset]);
    case dtype::i8: return static_cast<double>(static_cast<const std::int8_t*>(data)[offset]);
    case dtype::i32: return static_cast<double>(static_cast<const std::int32_t*>(data)[offset]);
    case dtype::i64: return static_cast<double>(static_cast<const std::int64_t*>(data)[offset]);
    default: break;
  }
  return 0;
}

/// The float next to x towards 0, with the last bit set if that is not x itself. Rounding the result to 16 bits gives
/// what rounding x would have given; rounding twice to nearest would not.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if ((x < 0 ? -back : back) > (x < 0 ? -x : x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

/// Stores x, rounded to nearest even.
inline void store_element(void* data, dtype type, index_t offset, double x) {
  switch (type) {
    case dtype::f32: static_cast<float*>(data)[offset] = static_cast<float>(x); break;
    case dtype::f64: static_cast<double*>(data)[offset] = x; break;
    case dtype::f16: static_cast<half*>(data)[offset] = half(round_to_odd(x)); break;
    case dtype::bf16: static_cast<bfloat16*>(data)[offset] = bfloat16(round_to_odd(x)); break;
    default: break;
  }
}

}  // namespace AFT_ISA
}  // namespace aft
