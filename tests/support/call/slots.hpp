// SPDX-License-Identifier: Apache-2.0
/// @file slots.hpp  Slots of a stream as their owner has them: bytes, aligned as they have to be, and reset.
#pragma once

#include "engines/engine.hpp"

#include <random>
#include <vector>

namespace aft::test {

struct slots {
  stream_spec spec;
  index_t count;
  std::vector<std::byte> memory;
  std::byte* first;

  slots(const stream_spec& s, index_t n) : spec(s), count(n), memory(static_cast<std::size_t>(s.bytes() * n + 64)) {
    const auto beyond = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    first = memory.data() + (beyond == 0 ? 0 : 64 - beyond);
    reset(cpu{}, view());
  }
  stream_view<> view() const { return {spec, first, count}; }
  index_t position(index_t slot) const { return aft::position(cpu{}, view(), slot); }
  std::vector<std::byte> bytes(index_t slot) const {
    return {first + slot * spec.bytes(), first + (slot + 1) * spec.bytes()};
  }
};

/// n numbers of -2 to 2.
inline std::vector<float> random_floats(index_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& e : x) e = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0F;
  return x;
}

}  // namespace aft::test
