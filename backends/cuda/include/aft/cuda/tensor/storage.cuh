// SPDX-License-Identifier: Apache-2.0
/// @file tensor/storage.cuh  Reads and writes of type-erased strided tensors by single threads.
#pragma once

#include <aft/core/problem/problem.hpp>

#include "../math/arithmetic.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

AFT_DEVICE float half_to_float(std::uint16_t bits) {
#if defined(AFT_DEVICE_EMULATOR)
  return detail::half_bits_to_float(bits);
#else
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#endif
}
AFT_DEVICE std::uint16_t float_to_half(float x) {
#if defined(AFT_DEVICE_EMULATOR)
  return detail::float_to_half_bits(x);
#else
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#endif
}
AFT_DEVICE float bfloat16_to_float(std::uint16_t bits) {
  return from_bits<float>(static_cast<std::uint32_t>(bits) << 16);
}
AFT_DEVICE std::uint16_t float_to_bfloat16(float x) {
#if defined(AFT_DEVICE_EMULATOR)
  return detail::float_to_bfloat16_bits(x);
#else
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#endif
}

/// Element `at` of memory that holds `type`, which is double exactly when C is.
template <class C>
AFT_DEVICE C load(const std::byte* data, dtype type, index_t at) {
  if constexpr (sizeof(C) == 8) {
    return reinterpret_cast<const double*>(data)[at];
  } else {
    if (type == dtype::f32) return reinterpret_cast<const float*>(data)[at];
    const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(data)[at];
    return type == dtype::bf16 ? bfloat16_to_float(bits) : half_to_float(bits);
  }
}

template <class C>
AFT_DEVICE void store(std::byte* data, dtype type, index_t at, C x) {
  if constexpr (sizeof(C) == 8) {
    reinterpret_cast<double*>(data)[at] = x;
  } else {
    if (type == dtype::f32) {
      reinterpret_cast<float*>(data)[at] = x;
    } else {
      reinterpret_cast<std::uint16_t*>(data)[at] = type == dtype::bf16 ? float_to_bfloat16(x) : float_to_half(x);
    }
  }
}

/// aft::field with plain arrays: std::array has no members that device code may call.
struct tensor {
  std::byte* data = nullptr;
  dtype type = dtype::other;
  bool set = false;
  index_t sb = 0, s0 = 0, s1 = 0, s2 = 0, sc = 0;
  bool even = true;  ///< positions follow each other s2 elements apart, on a grid too
};

/// Axes of the positions: (1, 1, T) for a sequence.
struct grid {
  index_t n0 = 1, n1 = 1, n2 = 1;
};

struct point {
  index_t x0, x1, x2;
};

AFT_DEVICE point point_of(const grid& g, index_t t) {
  if (g.n0 == 1 && g.n1 == 1) return {0, 0, t};
  const index_t rest = t / g.n2;
  return {rest / g.n1, rest % g.n1, t % g.n2};
}

/// Offset of position t of batch element b, before the channel.
AFT_DEVICE index_t row_offset(const tensor& x, const grid& g, index_t b, index_t t) {
  const point at = point_of(g, t);
  return b * x.sb + at.x0 * x.s0 + at.x1 * x.s1 + at.x2 * x.s2;
}

template <class C>
AFT_DEVICE C load(const tensor& x, const grid& g, index_t b, index_t t, index_t c) {
  return load<C>(x.data, x.type, row_offset(x, g, b, t) + c * x.sc);
}
template <class C>
AFT_DEVICE void store(const tensor& x, const grid& g, index_t b, index_t t, index_t c, C value) {
  store<C>(x.data, x.type, row_offset(x, g, b, t) + c * x.sc, value);
}

inline tensor to_tensor(const field& f, const grid& g) {
  const bool even = (g.n1 == 1 || f.sx[1] == g.n2 * f.sx[2]) && (g.n0 == 1 || f.sx[0] == g.n1 * g.n2 * f.sx[2]);
  return {f.data, f.type, f.set, f.sb, f.sx[0], f.sx[1], f.sx[2], f.sc, even};
}

/// A scratch tensor (B, T, channels) in row-major order, seen through a grid's strides.
template <class C>
tensor scratch_tensor(C* data, const grid& g, index_t channels) {
  return {reinterpret_cast<std::byte*>(data),
          dtype_of<C>,
          true,
          g.n0 * g.n1 * g.n2 * channels,
          g.n1 * g.n2 * channels,
          g.n2 * channels,
          channels,
          1};
}

}  // namespace aft::inline AFT_ISA::cuda_impl
