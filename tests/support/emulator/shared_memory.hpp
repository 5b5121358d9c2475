// SPDX-License-Identifier: Apache-2.0
/// @file shared_memory.hpp  The shared memory of a block, which AddressSanitizer can be told to watch in part.
#pragma once

#include <cstddef>
#include <new>

// The sources of the emulator that are compiled without AddressSanitizer; the build says where kernels are watched.
#if defined(AFT_ASAN_FIBERS)
#include <sanitizer/asan_interface.h>

// What instrumented code calls; the interface's header leaves them out.
extern "C" {
void __asan_loadN(const void* p, std::size_t bytes);
void __asan_storeN(const void* p, std::size_t bytes);
}
#endif

namespace aft::emulator {

inline void forbid([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(AFT_ASAN_FIBERS)
  __asan_poison_memory_region(p, bytes);
#endif
}
inline void allow([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(AFT_ASAN_FIBERS)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

/// Of a copy that the emulator makes for a kernel.
inline void watch_copy([[maybe_unused]] const void* to, [[maybe_unused]] const void* from,
                       [[maybe_unused]] std::size_t bytes) {
#if defined(AFT_ASAN_FIBERS)
  __asan_storeN(to, bytes);
  __asan_loadN(from, bytes);
#endif
}

/// The most that a block of any kernel may ask for, and a little behind it; aligned as far as any kernel needs.
class shared_memory {
 public:
  explicit shared_memory(std::size_t bytes)
      : data_(static_cast<unsigned char*>(::operator new(bytes, alignment))), bytes_(bytes) {}
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;
  ~shared_memory() {
    allow(data_, bytes_);
    ::operator delete(data_, alignment);
  }

  unsigned char* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::align_val_t alignment{1024};
  unsigned char* data_;
  std::size_t bytes_;
};

}  // namespace aft::emulator
