// SPDX-License-Identifier: Apache-2.0
/// @file tensor/tensor_column.cuh  A column (b, c) of a strided tensor, read some positions at a time by one thread.
///
/// What does not depend on the position (the offset of the column, the division that finds a key channel, whether a
/// grid's rows follow each other evenly) is worked out once, and all reads of a strip are asked for before the first
/// is used: one at a time, a thread waits for memory at every position (docs/cuda.md, "AFT-simple").
#pragma once

#include "../device/tuning.hpp"
#include "call.cuh"
#include "columns.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int strip = tuning::positions_at_once;

struct tensor_column {
  std::byte* data = nullptr;
  dtype type = dtype::other;
  bool even = true;  ///< positions are `step` elements apart, in a grid too
  index_t first = 0, step = 0;
  index_t s0 = 0, s1 = 0;

  AFT_DEVICE static tensor_column of(const tensor& x, const grid& g, index_t b, index_t c) {
    tensor_column column;
    column.data = x.data;
    column.type = x.type;
    column.even = (g.n1 == 1 || x.s1 == g.n2 * x.s2) && (g.n0 == 1 || x.s0 == g.n1 * g.n2 * x.s2);
    column.first = b * x.sb + c * x.sc;
    column.step = x.s2;
    column.s0 = x.s0;
    column.s1 = x.s1;
    return column;
  }
  AFT_DEVICE index_t at(const grid& g, index_t t) const {
    if (even) return first + t * step;
    const point x = point_of(g, t);
    return first + x.x0 * s0 + x.x1 * s1 + x.x2 * step;
  }

  /// Positions t + i for i in [lo, hi); what lies outside of that is 0 and is not touched.
  template <class C>
  AFT_DEVICE void read(const grid& g, index_t t, int lo, int hi, C (&out)[strip]) const {
    index_t places[strip];
    if (even) {
      AFT_DEVICE_UNROLL
      for (int i = 0; i < strip; ++i) places[i] = first + (t + i) * step;
    } else {
      AFT_DEVICE_UNROLL
      for (int i = 0; i < strip; ++i) places[i] = i >= lo && i < hi ? at(g, t + i) : 0;
    }
    if constexpr (sizeof(C) == 8) {
      AFT_DEVICE_UNROLL
      for (int i = 0; i < strip; ++i)
        out[i] = i >= lo && i < hi ? reinterpret_cast<const double*>(data)[places[i]] : 0.0;
    } else if (type == dtype::f32) {
      AFT_DEVICE_UNROLL
      for (int i = 0; i < strip; ++i)
        out[i] = i >= lo && i < hi ? reinterpret_cast<const float*>(data)[places[i]] : 0.0f;
    } else {
      std::uint16_t bits[strip];
      AFT_DEVICE_UNROLL
      for (int i = 0; i < strip; ++i)
        bits[i] = i >= lo && i < hi ? reinterpret_cast<const std::uint16_t*>(data)[places[i]] : std::uint16_t{0};
      AFT_DEVICE_UNROLL
      for (int i = 0; i < strip; ++i)
        out[i] = type == dtype::bf16 ? bfloat16_to_float(bits[i]) : half_to_float(bits[i]);
    }
  }
  template <class C>
  AFT_DEVICE void write(const grid& g, index_t t, C x) const {
    store<C>(data, type, at(g, t), x);
  }
};

/// Keys and values of a column.
template <class C>
struct key_column {
  tensor_column k, v;
  const std::byte* mask = nullptr;  ///< of the batch element, where it hides keys
  index_t end = 0;                  ///< keys from here on are hidden

  AFT_DEVICE static key_column of(const device_call<C>& p, const column& col) {
    key_column keys;
    keys.k = tensor_column::of(p.k, p.positions, col.b, col.c / (p.d / p.hk));
    keys.v = tensor_column::of(p.v, p.positions, col.b, col.c);
    if (p.mask != nullptr && p.mask_st == 0) keys.mask = p.mask + col.b * p.mask_sb;
    keys.end = length_of(p.lengths, col.b, p.Tk);
    return keys;
  }

  /// Keys s + i for i in [lo, hi): -inf where one is hidden or there is none, and its value then is 0.
  AFT_DEVICE void read(const device_call<C>& p, index_t s, int lo, int hi, C (&key)[strip], C (&value)[strip]) const {
    const index_t rest = end - s;
    hi = rest < hi ? static_cast<int>(rest < 0 ? 0 : rest) : hi;
    k.read(p.positions, s, lo, hi, key);
    v.read(p.positions, s, lo, hi, value);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < strip; ++i)
      if (i < lo || i >= hi) key[i] = -number<C>::infinity;
    if (mask == nullptr) return;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < strip; ++i)
      if (i >= lo && i < hi && mask[(s + i) * p.mask_ss] == std::byte{0}) key[i] = -number<C>::infinity;
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
