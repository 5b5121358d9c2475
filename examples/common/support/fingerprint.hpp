// SPDX-License-Identifier: Apache-2.0
//
// FNV-1a with 64 bits: tells files apart, and finds flipped bits in them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace examples {

inline constexpr std::uint64_t empty_fingerprint = 0xCBF29CE484222325ULL;

inline std::uint64_t fold_bytes(std::uint64_t hash, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ from[i]) * 0x100000001B3ULL;
  return hash;
}

}  // namespace examples
