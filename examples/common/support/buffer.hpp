// SPDX-License-Identifier: Apache-2.0
//
// Owning arrays whose bytes are counted, so that the report can say what each mixer costs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace examples {

using index_t = std::int64_t;

/// Bytes held by every `buffer` and by the scratch of the operators.
class memory_meter {
 public:
  static void add(std::size_t bytes) {
    const std::size_t now = current_.fetch_add(bytes) + bytes;
    std::size_t seen = peak_.load();
    while (seen < now && !peak_.compare_exchange_weak(seen, now)) {
    }
  }
  static void remove(std::size_t bytes) { current_.fetch_sub(bytes); }
  static std::size_t current() { return current_.load(); }
  static std::size_t peak() { return peak_.load(); }
  static void restart() { peak_.store(current_.load()); }

 private:
  inline static std::atomic<std::size_t> current_{0};
  inline static std::atomic<std::size_t> peak_{0};
};

/// The scratch that the operators ask for, counted like everything else. It keeps what it is given back: a
/// training step asks for the same few sizes again and again, and fresh pages from the system cost more than
/// the work done in them.
class metered_memory final : public std::pmr::memory_resource {
 public:
  metered_memory() = default;
  metered_memory(const metered_memory&) = delete;
  metered_memory& operator=(const metered_memory&) = delete;
  ~metered_memory() override {
    for (auto& [size, blocks] : free_)
      for (void* block : blocks) {
        memory_meter::remove(size.first);
        std::pmr::new_delete_resource()->deallocate(block, size.first, size.second);
      }
  }

 private:
  using size_and_alignment = std::pair<std::size_t, std::size_t>;

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    {
      const std::lock_guard lock(mutex_);
      std::vector<void*>& blocks = free_[{bytes, alignment}];
      if (!blocks.empty()) {
        void* block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    void* block = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    memory_meter::add(bytes);
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    const std::lock_guard lock(mutex_);
    free_[{bytes, alignment}].push_back(block);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  std::map<size_and_alignment, std::vector<void*>> free_;
};

/// A fixed-size array on a cache-line boundary, zeroed when made: moments and gradients start at 0,
/// and no result may ever depend on what memory held before.
template <class T>
class buffer {
 public:
  buffer() = default;
  explicit buffer(index_t size) : size_(size) {
    if (size_ == 0) return;
    data_ = static_cast<T*>(::operator new(bytes(), alignment));
    memory_meter::add(bytes());
    zero();
  }
  buffer(buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  ~buffer() {
    if (data_ == nullptr) return;
    memory_meter::remove(bytes());
    ::operator delete(data_, alignment);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  index_t size() const { return size_; }
  T& operator[](index_t i) { return data_[i]; }
  const T& operator[](index_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  void zero() { std::fill(begin(), end(), T{}); }

 private:
  static constexpr std::align_val_t alignment{64};
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }

  T* data_ = nullptr;
  index_t size_ = 0;
};

}  // namespace examples
