// SPDX-License-Identifier: Apache-2.0
// Device memory of the emulator: plain heap, so that AddressSanitizer watches its ends, or pages that the host cannot
// touch.
#include "device_emulator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

namespace aft::emulator {

namespace {
thread_local memory_statistics statistics;
thread_local long failing_allocation = -1;
thread_local long failing_launch = -1;
thread_local bool captures = false;

/// Addresses for all that calls allocate while memory is apart. Pieces follow each other until none is left.
class apart_pages {
 public:
  apart_pages()
      : base_(static_cast<unsigned char*>(
            mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (base_ == MAP_FAILED) throw std::bad_alloc();
  }
  apart_pages(const apart_pages&) = delete;
  apart_pages& operator=(const apart_pages&) = delete;
  ~apart_pages() { munmap(base_, most); }

  bool has(const void* p) const { return p >= base_ && p < base_ + most; }
  bool apart() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return apart_;
  }
  void keep(bool on) {
    const std::lock_guard<std::mutex> lock(mutex_);
    apart_ = on;
    protect();
  }
  void open(int more) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool was = open_ > 0;
    open_ += more;
    if (apart_ && was != (open_ > 0)) protect();
  }
  void* take(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t rounded = (bytes + 255) / 256 * 256;
    if (rounded > most - used_) throw std::bad_alloc();
    void* const p = base_ + used_;
    used_ += rounded;
    ++pieces_;
    return p;
  }
  void give() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--pieces_ == 0) used_ = 0;
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 30;

  void protect() {
    const int allowed = apart_ && open_ == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (mprotect(base_, most, allowed) != 0) throw std::bad_alloc();
  }

  unsigned char* base_;
  std::mutex mutex_;
  std::size_t used_ = 0, pieces_ = 0;
  int open_ = 0;
  bool apart_ = false;
};

apart_pages& pages() {
  static apart_pages all;
  return all;
}
}  // namespace

memory_statistics& memory() {
  return statistics;
}

void fail_allocation(long nth) {
  failing_allocation = nth < 0 ? -1 : statistics.allocations + nth;
}
void fail_launch(long nth) {
  failing_launch = nth < 0 ? -1 : statistics.launches + nth;
}
bool launch_fails(void* stream) {
  statistics.stream = stream;
  return statistics.launches++ == failing_launch;
}

void capture(bool on) {
  captures = on;
}
bool capturing() {
  return captures;
}
void wait() {
  ++statistics.waits;
}

void keep_apart(bool on) {
  pages().keep(on);
}
void* take_apart(std::size_t bytes) {
  return pages().take(bytes);
}
void give_apart() {
  pages().give();
}
bool is_of_host(const void* p) {
  return pages().apart() && !pages().has(p);
}
opened::opened() {
  pages().open(1);
}
opened::~opened() {
  pages().open(-1);
}

void* allocate(std::size_t bytes) {
  if (statistics.allocations++ == failing_allocation) return nullptr;
  const opened open;
  void* const p = pages().apart() ? pages().take(bytes) : ::operator new (bytes, std::align_val_t{256});
  fill_poison(p, bytes);
  statistics.in_use += bytes;
  statistics.peak = std::max(statistics.peak, statistics.in_use);
  return p;
}

void release(void* p, std::size_t bytes) {
  statistics.in_use -= bytes;
  if (pages().has(p)) return pages().give();
  ::operator delete (p, std::align_val_t{256});
}

}  // namespace aft::emulator
