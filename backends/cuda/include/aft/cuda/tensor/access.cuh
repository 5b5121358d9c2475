// SPDX-License-Identifier: Apache-2.0
/// @file tensor/access.cuh  How a kernel reaches the elements of a call's tensors.
///
/// A tensor of any layout is asked for its type, its strides and its grid at every element, which costs more
/// instructions than the sums do. Most tensors are lines: channels lie next to each other, so that a thread takes some
/// of them with one access, and positions follow each other one step apart. Both ways give the same bits.
#pragma once

#include "storage.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Of a line; every line begins at a multiple of it.
inline constexpr int line_alignment = 16;

/// Some neighbours of a line, by one access. W is as large as it is aligned.
template <class W>
AFT_DEVICE W load_words(const std::byte* from) {
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
