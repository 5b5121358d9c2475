// SPDX-License-Identifier: Apache-2.0
/// @file runtime/workspace.hpp  Working memory of one call, from the caller's memory resource.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

#include <aft/core/executors.hpp>
#include <aft/math/integers.hpp>

#include "function_ref.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define AFT_HAS_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AFT_HAS_ADDRESS_SANITIZER
#endif
#endif

namespace aft::inline AFT_ISA::cpu_impl {

/// A buffer for each thread of a call.
template <class T>
struct per_thread {
  T* first = nullptr;
  index_t apart = 0;  ///< elements from one thread's to the next one's
  T* of(int thread) const { return first + thread * apart; }
};

/// Takes blocks from a memory resource and gives them all back at the end of the call, also when it throws. Used by
/// the calling thread only, before any output is written.
class scratch {
 public:
  explicit scratch(const cpu& exec) : from_(exec.memory != nullptr ? exec.memory : std::pmr::new_delete_resource()) {}
  /// Gives out nothing and counts what is wanted, for reserve().
  scratch() = default;
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    while (last_ != nullptr) {
      header* const h = last_;
      last_ = h->before;
      give_back(*from_, h, h->bytes);
    }
  }

  /// n elements, uninitialised, on a cache line. n may be 0.
  template <class T>
  T* take(index_t n) {
    return reinterpret_cast<T*>(take_bytes(static_cast<std::size_t>(max_of(n, 0)) * sizeof(T)));
  }

  /// n elements for each of so many threads. Between them lie three times as many that nothing touches, so that they
  /// take no pages: what the hardware asks for ahead of one thread's columns, a lane tile's length apart, is else the
  /// next thread's, and where two threads share no cache each then waits for the other's. On two complexes of cores
  /// strict(32) on 8 x 1024 x 512, 2 x 3072 x 256 and 1 x 4096 x 512 takes 0.78, 0.73 and 0.84 of the time by it and by
  /// items of a thread's own; by one buffer's length alone 0.84, 0.86 and 0.92, on 32 x 197 x 384 0.87. On one complex
  /// it takes as long (Zen 5, 2026-11).
  template <class T>
  per_thread<T> take_each(index_t n, int threads) {
    if (threads == 1 || n == 0) return {take<T>(n * threads), n};
    constexpr index_t size = static_cast<index_t>(sizeof(T));
    constexpr index_t page = (index_t{4} << 10) / size;
    // No one has measured more threads than two, and what lies between counts as taken.
    const index_t most = (threads > 4 ? index_t{1} << 20 : index_t{4} << 20) / size;
    const index_t wanted = 3 * n < most / threads ? 3 * n : most / threads;
    const index_t apart = n + max_of(wanted, page);
    return {take<T>(apart * threads), apart};
  }

  /// Runs lay_out, which takes whatever a call needs, so that all of it is one block. What a worker holds is to be
  /// written only where memory was given: at first lay_out counts.
  void take_at_once(function_ref<void(scratch&)> lay_out) {
    scratch counter;
    lay_out(counter);
    reserve(counter);
    lay_out(*this);
  }

  /// Bytes of what was counted.
  std::size_t counted() const { return left_; }

  /// One block for what was counted; returns the bytes that are held from now on. Beyond 32 MiB none are: such a block
  /// goes back whatever came before, and glibc maps it anew every time.
  std::size_t reserve(const scratch& counter) {
    if (counter.left_ < std::size_t{32} << 20) reserve<std::byte>(static_cast<index_t>(counter.left_));
    return left_;
  }

  /// Makes the next `n` elements one block of the resource. A free list of many blocks that nothing holds any more is
  /// what malloc gives back to the system, and its pages were a tenth of the time of the next call.
  template <class T>
  void reserve(index_t n) {
    if (shared == 0 || from_ == nullptr) return;
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
    if (bytes <= left_) return;
    next_ = block(bytes);
    left_ = bytes;
  }

 private:
  static constexpr std::size_t alignment = 64;
  // Small buffers share a block of the resource: a short call takes ten of them, and malloc was a quarter of its time.
  // Not where overruns are looked for.
#if defined(AFT_HAS_ADDRESS_SANITIZER)
  static constexpr std::size_t shared = 0;
  static constexpr std::size_t least_alignment = alignment;
#else
  static constexpr std::size_t shared = std::size_t{16} << 10;
  // No more than malloc gives anyway. Beyond that it cuts the block out of a larger one, whose first bytes stay in a
  // list of their own and keep it from being given out again: each of a program's first eight calls took new pages, a
  // tenth of the time of local on 1 x 4096 x 512, and kept them.
  static constexpr std::size_t least_alignment = alignof(std::max_align_t);
#endif
  // The chain lives inside the blocks themselves, so nothing but the resource is asked for memory.
  struct header {
    header* before;
    std::size_t bytes;
  };
  // Behind a header the next line begins within `alignment` bytes of the block, if the header does not cross one. Where
  // no type is aligned to 16 bytes, s390x and macOS on Arm, the header asks for more than max_align_t.
  static constexpr std::size_t resource_alignment = max_of(least_alignment, sizeof(header));
  static_assert(resource_alignment % sizeof(header) == 0 && resource_alignment <= alignment);

 public:
  // GCC guesses which resource it will be, and takes a copy of that one's code along, compiled for this file's
  // instruction set but under the standard library's name. A program of several instruction sets keeps one copy, for
  // all who call it.
#if defined(__GNUC__) && !defined(__clang__)
#define AFT_WITHOUT_GUESSES gnu::optimize("no-devirtualize-speculatively"),
#else
#define AFT_WITHOUT_GUESSES
#endif
  [[AFT_WITHOUT_GUESSES gnu::noinline]] static void* take_from(std::pmr::memory_resource& from, std::size_t bytes) {
    return from.allocate(bytes, resource_alignment);
  }
  [[AFT_WITHOUT_GUESSES gnu::noinline]] static void give_back(std::pmr::memory_resource& from, void* block,
                                                              std::size_t bytes) {
    from.deallocate(block, bytes, resource_alignment);
  }
#undef AFT_WITHOUT_GUESSES

 private:
  /// Compiled once: a call takes dozens of buffers.
  AFT_COMPILE_ONCE std::byte* take_bytes(std::size_t wanted) {
    if (from_ == nullptr) {
      left_ += (wanted / alignment + 1) * alignment;
      return nullptr;
    }
    if constexpr (shared == 0) return block(wanted);
    // Never null, even where nothing is wanted.
    const std::size_t bytes = wanted == 0 ? alignment : round_up(wanted, alignment);
    if (bytes > left_) {
      if (bytes >= shared) return block(bytes);
      next_ = block(shared);
      left_ = shared;
    }
    std::byte* const taken = next_;
    next_ += bytes;
    left_ -= bytes;
    return taken;
  }

  AFT_COMPILE_ONCE std::byte* block(std::size_t bytes) {
    void* const raw = take_from(*from_, alignment + bytes);
    last_ = ::new (raw) header{last_, alignment + bytes};
    std::byte* const after = static_cast<std::byte*>(raw) + sizeof(header);
    return after + (alignment - reinterpret_cast<std::uintptr_t>(after) % alignment) % alignment;
  }

  std::pmr::memory_resource* from_ = nullptr;
  header* last_ = nullptr;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

/// What the tile buffers of all threads of a call may take, of the 64 MiB that the call may.
inline constexpr std::size_t tile_bytes = std::size_t{60} << 20;

/// The most threads, of so many, with which a call's buffers keep within `room`: bytes(threads) says what they take.
/// What one thread takes is not asked about.
template <class Bytes>
inline int threads_within(std::size_t room, int wanted, const Bytes& bytes) {
  int threads = wanted;
  while (threads > 1 && bytes(threads) > room) threads -= threads / 8 + 1;
  return threads;
}

}  // namespace aft::inline AFT_ISA::cpu_impl

#undef AFT_HAS_ADDRESS_SANITIZER
