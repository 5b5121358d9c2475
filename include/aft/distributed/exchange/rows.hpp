// SPDX-License-Identifier: Apache-2.0
/// @file exchange/rows.hpp  Rows of channels between a caller's tensors, contiguous buffers, and the arithmetic type.
#pragma once

#include <aft/core/problem/problem.hpp>
#include <aft/core/views/element_access.hpp>

#include <cstring>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Calls f with a pointer of the type that the memory holds.
template <class F>
void with_type(std::byte* data, dtype type, const F& f) {
  void* const at = data;
  switch (type) {
    case dtype::f32: return f(static_cast<float*>(at));
    case dtype::f64: return f(static_cast<double*>(at));
    case dtype::f16: return f(static_cast<half*>(at));
    case dtype::bf16: return f(static_cast<bfloat16*>(at));
    default: break;
  }
}

/// n elements, `step` apart, into numbers that are `to_step` apart. Exact.
template <class C>
void load_row(const std::byte* from, dtype type, index_t step, index_t n, C* to, index_t to_step = 1) {
  with_type(const_cast<std::byte*>(from), type, [&](const auto* x) {
    using T = std::remove_cvref_t<decltype(*x)>;
    const auto number = [](const T& e) {
      if constexpr (std::is_same_v<T, double> || std::is_same_v<T, C>) {
        return static_cast<C>(e);
      } else {
        return static_cast<C>(static_cast<float>(e));
      }
    };
    // Channels mostly lie side by side, and steps that a compiler knows are the ones it vectorises.
    if (step == 1 && to_step == 1) {
      for (index_t i = 0; i < n; ++i) to[i] = number(x[i]);
    } else if (step == 1 && to_step == 2) {
      for (index_t i = 0; i < n; ++i) to[2 * i] = number(x[i]);
    } else {
      for (index_t i = 0; i < n; ++i) to[i * to_step] = number(x[i * step]);
    }
  });
}

/// The other way, rounded once to nearest even.
template <class C>
void store_row(const C* from, std::byte* to, dtype type, index_t step, index_t n) {
  with_type(to, type, [&](auto* x) {
    using T = std::remove_cvref_t<decltype(*x)>;
    const auto store = [&](index_t by) {
      for (index_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) {
          x[i * by] = static_cast<T>(from[i]);
        } else if constexpr (std::is_same_v<C, float>) {
          x[i * by] = T(from[i]);
        } else {
          x[i * by] = T(round_to_odd(from[i]));
        }
      }
    };
    if (step == 1) return store(1);
    store(step);
  });
}

/// n elements as they are, `step` elements apart, one behind the other.
inline void pack_row(const std::byte* from, index_t size, index_t step, index_t n, std::byte* to) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n * size));
    return;
  }
  for (index_t i = 0; i < n; ++i) std::memcpy(to + i * size, from + i * step * size, static_cast<std::size_t>(size));
}

/// Where row t of batch element b of a caller's tensor begins.
inline std::byte* row_at(const field& f, const std::array<index_t, 3>& grid, index_t b, index_t t) {
  return f.data + (b * f.sb + position_offset(f, grid, t)) * size_of(f.type);
}

/// A contiguous array (b, t, c) as a tensor of a problem, on a grid or a sequence.
template <class T>
field contiguous(T* data, dtype type, const std::array<index_t, 3>& grid, index_t cells, index_t channels) {
  field f;
  f.data = reinterpret_cast<std::byte*>(data);
  f.type = type;
  f.set = true;
  f.sb = cells * channels;
  f.sx = {grid[1] * grid[2] * channels, grid[2] * channels, channels};
  f.sc = 1;
  return f;
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
