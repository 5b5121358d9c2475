// SPDX-License-Identifier: Apache-2.0
/// @file device_slots.hpp  Slots on the emulated device, as their owner has them.
#pragma once

#include <aft/aft.hpp>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace aft::test {

template <class T, std::size_t Rank>
using device_view = tensor_view<T, Rank, device_space>;

/// Slots whose memory ends where the last one does, so that a sanitizer sees who goes further.
struct device_slots {
  stream_spec spec;
  index_t count;
  std::byte* first;

  device_slots(const stream_spec& s, index_t n)
      : spec(s), count(n), first(static_cast<std::byte*>(std::aligned_alloc(64, size()))) {
    std::memset(first, 0xff, size());
    reset(cuda{}, view());
  }
  device_slots(const device_slots&) = delete;
  device_slots& operator=(const device_slots&) = delete;
  ~device_slots() { std::free(first); }
  std::size_t size() const { return static_cast<std::size_t>(spec.bytes() * count); }
  stream_view<device_space> view() const { return {spec, first, count}; }
  index_t position(index_t slot) const { return aft::position(cuda{}, view(), slot); }
  std::vector<std::byte> bytes(index_t slot) const {
    return {first + slot * spec.bytes(), first + (slot + 1) * spec.bytes()};
  }
};

}  // namespace aft::test
