// SPDX-License-Identifier: Apache-2.0
/// @file spaces.hpp  Spaces of memory: every access is within what was allocated, and aligned to its whole width.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "launch.hpp"

namespace aft::ptx {

/// Allocations of device memory, as addresses that a program's pointers are.
struct global_memory {
  static void add(const void* p, std::size_t bytes);
  /// False where there is none.
  static bool remove(const void* p);
  static bool holds(const void* p);

  static unsigned char* at(std::uint64_t address, std::size_t bytes, int line) {
    if (address < first || address > last - bytes || last < bytes) find(address, bytes, line);
    return reinterpret_cast<unsigned char*>(address);
  }
  template <class T, std::size_t n>
  static std::array<T, n> load(std::uint64_t address, int line) {
    require_aligned(address, n * sizeof(T), line);
    std::array<T, n> x;
    std::memcpy(x.data(), at(address, sizeof x, line), sizeof x);
    return x;
  }
  template <class T, std::size_t n>
  static void store(std::uint64_t address, const std::array<T, n>& x, int line) {
    require_aligned(address, n * sizeof(T), line);
    std::memcpy(at(address, sizeof x, line), x.data(), sizeof x);
  }
  static void require_aligned(std::uint64_t address, std::size_t bytes, int line) {
    if (address % bytes != 0) fail_at(line, "an address that is not aligned to " + std::to_string(bytes) + " bytes");
  }

 private:
  static void find(std::uint64_t address, std::size_t bytes, int line);
  static std::uint64_t first, last;  ///< of the allocation that the last access was in
};

/// Of the block, at 32-bit addresses that begin where nobody expects: 16 bytes past a multiple of 1024, so that code
/// which needs more alignment than the language promises has to see to it.
struct shared_memory {
  static constexpr std::uint32_t first = 1024 + 16;
  static std::uint32_t begin() { return first; }
  /// What the emulator holds there; writes by threads are noted (together.hpp).
  static unsigned char* at(std::uint64_t address, std::size_t bytes, int line);
  /// Of a range that something else than threads writes or reads.
  static unsigned char* range(std::uint64_t address, std::size_t bytes, int line);

  template <class T, std::size_t n>
  static std::array<T, n> load(std::uint64_t address, int line) {
    global_memory::require_aligned(address, n * sizeof(T), line);
    std::array<T, n> x;
    std::memcpy(x.data(), range(address, sizeof x, line), sizeof x);
    return x;
  }
  template <class T, std::size_t n>
  static void store(std::uint64_t address, const std::array<T, n>& x, int line) {
    global_memory::require_aligned(address, n * sizeof(T), line);
    std::memcpy(at(address, sizeof x, line), x.data(), sizeof x);
  }
};

/// Of the kernel, which only reads them.
struct parameters {
  static void use(const unsigned char* p, std::size_t bytes);
  static std::uint64_t begin() { return reinterpret_cast<std::uint64_t>(values); }

  template <class T, std::size_t n>
  static std::array<T, n> load(std::uint64_t address, int line) {
    std::array<T, n> x;
    const std::uint64_t offset = address - begin();
    if (offset > size || size - offset < sizeof x) fail_at(line, "a read behind the parameters");
    global_memory::require_aligned(offset, sizeof x, line);
    std::memcpy(x.data(), values + offset, sizeof x);
    return x;
  }

 private:
  static const unsigned char* values;
  static std::size_t size;
};

}  // namespace aft::ptx
