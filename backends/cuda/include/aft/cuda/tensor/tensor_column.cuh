// SPDX-License-Identifier: Apache-2.0
/// @file tensor/tensor_column.cuh  A column (b, c) of a strided tensor, read some positions at a time by one thread.
///
/// What does not depend on the position (the offset of the column, the division that finds a key channel, whether a
/// grid's rows follow each other evenly) is worked out once, and all reads of a burst are asked for before the first
/// is used: one at a time, a thread waits for memory at every position (docs/cuda.md).
#pragma once

#include "../device/tuning.hpp"
#include "access.cuh"
#include "call.cuh"
#include "columns.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

template <class C>
inline constexpr int burst = tuning::bytes_at_once / static_cast<int>(sizeof(C));

/// The element at position 0. Everything else stays in the call, which costs no registers.
struct tensor_column {
  std::byte* data = nullptr;

  AFT_DEVICE static tensor_column of(const tensor& x, index_t b, index_t c) {
    const int size = x.type == dtype::f64 ? 8 : x.type == dtype::f32 ? 4 : 2;
    return {x.data == nullptr ? nullptr : x.data + (b * x.sb + c * x.sc) * size};
  }

  /// Positions t + i of `x` for i in [lo, hi); what lies outside of that is 0 and is not touched.
  template <class Access = any_layout, class C>
  AFT_DEVICE void read(const tensor& x, const grid& g, index_t t, int lo, int hi, C (&out)[burst<C>]) const {
    if constexpr (!is_any_layout<Access>) {
      const index_t step = unknown(x.s2);
      const auto* from = reinterpret_cast<const typename Access::stored*>(data) + (lo < hi ? t + lo : 0) * step;
      AFT_DEVICE_UNROLL
      for (int i = 0; i < burst<C>; ++i) {
        out[i] = C(0);
        if (i < lo || i >= hi) continue;
        out[i] = Access::wide(*from);
        from += step;
      }
    } else if (!x.even) {
      read_uneven(x, g, t, lo, hi, out);
    } else if constexpr (sizeof(C) == 8) {
      read_as<double>(x, t, lo, hi, out);
    } else if (x.type == dtype::f32) {
      read_as<float>(x, t, lo, hi, out);
    } else {
      std::uint16_t bits[burst<C>];
      read_as(x, t, lo, hi, bits);
      AFT_DEVICE_UNROLL
      for (int i = 0; i < burst<C>; ++i)
        out[i] = x.type == dtype::bf16 ? bfloat16_to_float(bits[i]) : half_to_float(bits[i]);
    }
  }
  template <class Access = any_layout, class C>
  AFT_DEVICE void write(const tensor& x, const grid& g, index_t t, C value) const {
    if constexpr (!is_any_layout<Access>) {
      reinterpret_cast<typename Access::stored*>(data)[t * x.s2] = Access::narrow(value);
    } else {
      store<C>(data, x.type, at(x, g, t), value);
    }
  }

 private:
  AFT_DEVICE static index_t at(const tensor& x, const grid& g, index_t t) {
    return x.even ? t * x.s2 : row_offset(x, g, 0, t);
  }
  template <class E, int n>
  AFT_DEVICE void read_as(const tensor& x, index_t t, int lo, int hi, E (&out)[n]) const {
    const E* from = reinterpret_cast<const E*>(data);
    if (lo < hi) from += (t + lo) * x.s2;
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      out[i] = E{};
      if (i < lo || i >= hi) continue;
      out[i] = *from;
      from += x.s2;
    }
  }
  /// Rare, and long to write out for each position: one copy, whose result finds its register by a comparison.
  template <class C, int n>
  AFT_DEVICE void read_uneven(const tensor& x, const grid& g, index_t t, int lo, int hi, C (&out)[n]) const {
    AFT_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) out[i] = C(0);
    AFT_DEVICE_UNROLL_BY(1)
    for (int j = lo; j < hi; ++j) {
      const C own = load<C>(data, x.type, at(x, g, t + j));
      AFT_DEVICE_UNROLL
      for (int i = 0; i < n; ++i) out[i] = i == j ? own : out[i];
    }
  }
};

/// Keys and values of a column.
template <class C, class Access = any_layout>
struct key_column {
  tensor_column k, v;
  const std::byte* mask = nullptr;  ///< of the batch element, where it hides keys
  index_t end = 0;                  ///< keys from here on are hidden

  AFT_DEVICE static key_column of(const device_call<C>& p, const column& col) {
    key_column keys;
    keys.k = tensor_column::of(p.k, col.b, quotient(col.c, quotient(p.d, p.hk)));
    keys.v = tensor_column::of(p.v, col.b, col.c);
    if (p.mask != nullptr && p.mask_st == 0) keys.mask = p.mask + col.b * p.mask_sb;
    keys.end = length_of(p.lengths, col.b, p.Tk);
    return keys;
  }

  /// Keys s + i for i in [lo, hi): -inf where one is hidden or there is none, and its value then says nothing.
  AFT_DEVICE void read(const device_call<C>& p, index_t s, int lo, int hi, C (&key)[burst<C>],
                       C (&value)[burst<C>]) const {
    const index_t rest = end - s;
    hi = rest < hi ? static_cast<int>(rest < 0 ? 0 : rest) : hi;
    k.template read<Access>(p.k, p.positions, s, lo, hi, key);
    v.template read<Access>(p.v, p.positions, s, lo, hi, value);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i)
      if (i < lo || i >= hi) key[i] = -number<C>::infinity;
    if (mask == nullptr) return;
    const index_t step = unknown(p.mask_ss);
    AFT_DEVICE_UNROLL
    for (int i = 0; i < burst<C>; ++i)
      if (i >= lo && i < hi && mask[(s + i) * step] == std::byte{0}) key[i] = -number<C>::infinity;
  }
};

}  // namespace aft::inline AFT_ISA::cuda_impl
