// SPDX-License-Identifier: Apache-2.0
/// @file tensor/access.cuh  How a kernel reaches the elements of a call's tensors.
///
/// A tensor of any layout is asked for its type, its strides and its grid at every element, which costs more
/// instructions than the sums do. Most tensors are lines: channels lie next to each other, so that a thread takes some
/// of them with one access, and positions follow each other one step apart. Both ways give the same bits.
#pragma once

#include "storage.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Columns of tensors of any type and strides, asked for at every element.
struct any_layout {};

/// Columns of T whose positions are one step apart, also on a grid, however far the channels: a thread that has one
/// channel needs no more.
template <class T>
struct even_steps;
template <>
struct even_steps<float> {
  using stored = float;
  AFT_DEVICE static float wide(float x) { return x; }
  AFT_DEVICE static float narrow(float x) { return x; }
};
template <>
struct even_steps<bfloat16> {
  using stored = std::uint16_t;
  AFT_DEVICE static float wide(std::uint16_t x) { return bfloat16_to_float(x); }
  AFT_DEVICE static std::uint16_t narrow(float x) { return float_to_bfloat16(x); }
};

template <class Access>
inline constexpr bool is_any_layout = false;
template <>
inline constexpr bool is_any_layout<any_layout> = true;

/// Of a lse and of averages, which then are float whatever the data.
template <class Access>
struct saved_steps {
  using access = even_steps<float>;
};
template <>
struct saved_steps<any_layout> {
  using access = any_layout;
};

/// Of a line; every line begins at a multiple of it.
inline constexpr int line_alignment = 16;

/// Some neighbours of a line, by one access. W is as large as it is aligned.
template <class W>
AFT_DEVICE W load_words(const std::byte* from) {
#if !defined(AFT_DEVICE_EMULATOR)
  // A copy of bytes is taken apart again where a part of them is used in a branch, in the end byte by byte.
  if constexpr (sizeof(W) == sizeof(uint4)) return __builtin_bit_cast(W, *reinterpret_cast<const uint4*>(from));
  if constexpr (sizeof(W) == sizeof(uint2)) return __builtin_bit_cast(W, *reinterpret_cast<const uint2*>(from));
#endif
  W x;
  __builtin_memcpy(&x, __builtin_assume_aligned(from, sizeof(W)), sizeof(W));
  return x;
}
template <class W>
AFT_DEVICE void store_words(std::byte* to, const W& x) {
  __builtin_memcpy(__builtin_assume_aligned(to, sizeof(W)), &x, sizeof(W));
}

/// Positions of a column of lines, from one on: the division and the products that find it are done once.
struct line_column {
  const std::byte* first = nullptr;
  index_t step = 0;  ///< bytes

  AFT_DEVICE static line_column of(const tensor& x, int size, index_t b, index_t t, index_t c) {
    return {x.data + (b * x.sb + t * x.s2 + c) * size, x.s2 * size};
  }
  /// `further`: bytes along the line.
  template <class W>
  AFT_DEVICE W read(int i, int further = 0) const {
    return load_words<W>(first + i * step + further);
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
