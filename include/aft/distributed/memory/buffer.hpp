// SPDX-License-Identifier: Apache-2.0
/// @file memory/buffer.hpp  Memory of a call over several ranks, what is of the size of a part taken before data moves.
#pragma once

#include <aft/core/config.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Numbers of one type from the executor's memory, not cleared. Throws what the resource throws, std::bad_alloc where
/// the count is beyond all memory.
template <class T>
class buffer {
 public:
  buffer() = default;
  buffer(std::pmr::memory_resource* from, index_t count) : from_(from), count_(count < 0 ? 0 : count) {
    if (count_ == 0) return;
    if (count_ > (index_t{1} << 60) / static_cast<index_t>(sizeof(T))) throw std::bad_alloc();
    data_ = static_cast<T*>(from_->allocate(bytes(), alignment));
  }
  buffer(buffer&& other) noexcept
      : from_(other.from_), data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    (std::swap)(from_, other.from_);
    (std::swap)(data_, other.data_);
    (std::swap)(count_, other.count_);
    return *this;
  }
  ~buffer() {
    if (data_ != nullptr) from_->deallocate(data_, bytes(), alignment);
  }

  T* data() const { return data_; }
  index_t size() const { return count_; }
  T& operator[](index_t i) const { return data_[i]; }
  void fill(T value) const {
    for (index_t i = 0; i < count_; ++i) data_[i] = value;
  }
  /// The first `count` numbers as bytes.
  std::span<std::byte> bytes_of(index_t count) const {
    return {reinterpret_cast<std::byte*>(data_), static_cast<std::size_t>(count) * sizeof(T)};
  }

 private:
  static constexpr std::size_t alignment = 64;
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  std::pmr::memory_resource* from_ = nullptr;
  T* data_ = nullptr;
  index_t count_ = 0;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
