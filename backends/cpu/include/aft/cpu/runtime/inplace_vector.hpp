// SPDX-License-Identifier: Apache-2.0
/// @file runtime/inplace_vector.hpp  As many elements as a call has, in room for the most that any has.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <aft/core/config.hpp>

namespace aft::inline AFT_ISA::cpu_impl {

/// `count` of at most N elements, on the stack. An array makes all N of them: the tiles and ranges of the widest group
/// are 11 KB, which clang 19 wrote by scatters, a sixth of `full` on one position.
template <class T, index_t N>
class inplace_vector {
 public:
  explicit inplace_vector(index_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    for (index_t i = 0; i < count; ++i) std::construct_at(data() + i);
  }
  inplace_vector(const inplace_vector&) = delete;
  inplace_vector& operator=(const inplace_vector&) = delete;

  T* data() { return reinterpret_cast<T*>(bytes_); }
  T& operator[](index_t i) { return data()[i]; }

 private:
  alignas(T) std::byte bytes_[static_cast<std::size_t>(N) * sizeof(T)];
};

}  // namespace aft::inline AFT_ISA::cpu_impl
