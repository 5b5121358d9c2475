// SPDX-License-Identifier: Apache-2.0
/// @file stream/slot_header.hpp  The first bytes of a slot: what it is of and how many positions it has seen.
#pragma once

#include <cstring>

#include "../version.hpp"
#include "spec.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// Finds damaged and foreign bytes, which needs no more than a good spread.
class digest {
 public:
  digest& add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 29;
    return *this;
  }
  digest& add(index_t word) { return add(static_cast<std::uint64_t>(word)); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

[[gnu::cold]] inline std::uint64_t digest_of(const stream_spec& s) {
  digest sum;
  sum.add(static_cast<index_t>(s.op())).add(static_cast<index_t>(s.type())).add(s.d()).add(s.hk());
  sum.add(s.before()).add(s.after()).add(s.taps()).add(s.capacity());
  return sum.value();
}

/// What is wrong with the bytes of a slot.
enum class slot_fault : std::uint8_t { none, foreign, version, spec, damaged };

/// Read and written as a whole: the memory is the caller's bytes, in which no object of this type lives.
struct slot_header {
  static constexpr std::uint64_t magic_word = 0x746f6c7374666100u;  // "\0aftslot" in memory, and its byte order
  static constexpr std::uint64_t version_word =
      std::uint64_t{AFT_VERSION_MAJOR} << 40 | std::uint64_t{AFT_VERSION_MINOR} << 20 | AFT_VERSION_PATCH;

  std::uint64_t magic = magic_word, version = version_word, spec = 0;
  index_t position = 0;
  std::uint64_t checksum = 0;
  std::uint64_t unused[3] = {0, 0, 0};

  std::uint64_t sum() const { return digest().add(magic).add(version).add(spec).add(position).value(); }

  static slot_header read(const std::byte* slot) {
    slot_header h;
    std::memcpy(&h, slot, sizeof h);
    return h;
  }
  [[gnu::cold]] slot_fault fault(std::uint64_t wanted_spec) const {
    if (magic != magic_word) return slot_fault::foreign;
    if (version != version_word) return slot_fault::version;
    if (checksum != sum() || position < 0) return slot_fault::damaged;
    return spec == wanted_spec ? slot_fault::none : slot_fault::spec;
  }
  static void write(std::byte* slot, std::uint64_t spec, index_t position) {
    slot_header h;
    h.spec = spec;
    h.position = position;
    h.checksum = h.sum();
    std::memcpy(slot, &h, sizeof h);
  }
};
static_assert(sizeof(slot_header) == slot_layout::header_bytes);

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
