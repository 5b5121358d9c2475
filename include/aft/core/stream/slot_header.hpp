// SPDX-License-Identifier: Apache-2.0
/// @file stream/slot_header.hpp  The first bytes of a slot: what it is of and how many positions it has seen.
#pragma once

#include "../version.hpp"
#include "spec.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// Finds damaged and foreign bytes, which needs no more than a good spread.
class digest {
 public:
  AFT_ALSO_ON_DEVICE digest& add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 29;
    return *this;
  }
  AFT_ALSO_ON_DEVICE digest& add(index_t word) { return add(static_cast<std::uint64_t>(word)); }
  AFT_ALSO_ON_DEVICE std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// Slots of the host and of a device keep other things in the same bytes: those of one are foreign to the other.
[[gnu::cold]] inline std::uint64_t digest_of(const stream_spec& s, bool on_device = false) {
  digest sum;
  if (on_device) sum.add(index_t{1});
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

  AFT_ALSO_ON_DEVICE std::uint64_t sum() const {
    return digest().add(magic).add(version).add(spec).add(position).value();
  }

  /// Slots are aligned to 64 bytes, which spares a device 64 loads.
  AFT_ALSO_ON_DEVICE static slot_header read(const std::byte* slot) {
    slot_header h;
    __builtin_memcpy(&h, __builtin_assume_aligned(slot, 64), sizeof h);
    return h;
  }
  [[gnu::cold]] AFT_ALSO_ON_DEVICE slot_fault fault(std::uint64_t wanted_spec) const {
    if (magic != magic_word) return slot_fault::foreign;
    if (version != version_word) return slot_fault::version;
    if (checksum != sum() || position < 0) return slot_fault::damaged;
    return spec == wanted_spec ? slot_fault::none : slot_fault::spec;
  }
  AFT_ALSO_ON_DEVICE static void write(std::byte* slot, std::uint64_t spec, index_t position) {
    slot_header h;
    h.spec = spec;
    h.position = position;
    h.checksum = h.sum();
    __builtin_memcpy(__builtin_assume_aligned(slot, 64), &h, sizeof h);
  }
};
static_assert(sizeof(slot_header) == slot_layout::header_bytes);

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
