// SPDX-License-Identifier: Apache-2.0
/// @file memory/device_memory.hpp  A call's device and the host's copies of what lies there: messages, and what ranks
/// do to them, are the host's, kernels are the device's.
#pragma once

#include <aft/core/executors.hpp>
#include <aft/core/problem/device_request.hpp>

#include "buffer.hpp"

#include <vector>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// The CUDA stream of a call. Every function but give and settle throws device_error.
class device_stream {
 public:
  using serve_function = void (*)(device_request&, const cuda&);

  device_stream(const char* op, const cuda& exec, serve_function serves) : op_(op), exec_(exec), serve_(serves) {}

  const cuda& exec() const { return exec_; }
  /// Where the stream is being captured, no call can wait for it.
  void require_waiting() const { serve({.what = device_action::begin}); }
  void* take(std::size_t bytes) const {
    device_request r{.what = device_action::take, .op = op_, .bytes = bytes};
    serve_(r, exec_);
    return r.device;
  }
  void give(void* memory, std::size_t bytes) const noexcept {
    try {
      serve({.what = device_action::give, .device = memory, .bytes = bytes});
    } catch (...) {  // a device that has failed has said so before
    }
  }
  void write(void* device, const void* host, std::size_t bytes) const {
    serve({.what = device_action::to_device, .device = device, .host = const_cast<void*>(host), .bytes = bytes});
  }
  void read(void* host, const void* device, std::size_t bytes) const {
    serve({.what = device_action::to_host, .device = const_cast<void*>(device), .host = host, .bytes = bytes});
  }
  void copy(const element_block& to, const element_block& from) const {
    if (to.count() > 0) serve({.what = device_action::copy, .to = to, .from = from});
  }
  void wait() const { serve({.what = device_action::wait}); }
  /// After an error: what was begun reads and writes memory that is about to go.
  void settle() const noexcept {
    try {
      wait();
    } catch (...) {
    }
  }

 private:
  void serve(device_request r) const {
    r.op = op_;
    serve_(r, exec_);
  }

  const char* op_;
  cuda exec_;
  serve_function serve_;
};

/// Memory of the host with a twin of the same length on the device. Where a pointer to the host's is found, kernels get
/// its twin; all other pointers of a problem are the caller's and the device's already.
class twin_memory final : public std::pmr::memory_resource {
 public:
  explicit twin_memory(const device_stream& stream) : stream_(stream) {}
  twin_memory(const twin_memory&) = delete;
  twin_memory& operator=(const twin_memory&) = delete;
  ~twin_memory() override = default;

  const device_stream& stream() const { return stream_; }

  struct twin {
    std::byte *host = nullptr, *device = nullptr;
    std::size_t bytes = 0;
  };
  /// The memory that p points into, or right behind; null for any other pointer. Few enough to look at one by one.
  const twin* find(const std::byte* p) const {
    for (const twin& t : all_)
      if (p >= t.host && p <= t.host + t.bytes) return &t;
    return nullptr;
  }
  void write(const twin& t) const { stream_.write(t.device, t.host, t.bytes); }
  void read(const twin& t) const { stream_.read(t.host, t.device, t.bytes); }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    std::pmr::memory_resource* const host = std::pmr::new_delete_resource();
    all_.reserve(all_.size() + 1);
    twin t{static_cast<std::byte*>(host->allocate(bytes, alignment)), nullptr, bytes};
    try {
      t.device = static_cast<std::byte*>(stream_.take(bytes));
    } catch (...) {
      host->deallocate(t.host, bytes, alignment);
      throw;
    }
    all_.push_back(t);
    return t.host;
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].host != p) continue;
      stream_.give(all_[i].device, bytes);
      all_[i] = all_.back();
      all_.pop_back();
      break;
    }
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  device_stream stream_;
  std::vector<twin> all_;
};

/// The elements of device memory as the host's, one behind the other in the order of their indices.
inline buffer<std::byte> host_copy(const element_block& from, twin_memory& memory) {
  // Of nothing too there is a place, as callers have one.
  buffer<std::byte> copy(&memory, from.count() > 0 ? from.count() * from.size : 1);
  if (from.count() == 0) return copy;
  const twin_memory::twin& t = *memory.find(copy.data());
  element_block to = from;
  to.data = t.device;
  to.set_contiguous();
  memory.stream().copy(to, from);
  memory.read(t);
  return copy;
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
