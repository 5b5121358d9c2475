// SPDX-License-Identifier: Apache-2.0
/// @file stream_mistake.hpp  One thing that makes a stream call one that has to be refused.
#pragma once

#include <aft/core/errors.hpp>

#include <string>

#include "engines/engine.hpp"
#include "setup.hpp"

namespace aft::test {

template <class T>
class stream_mistake {
 public:
  /// Which one it is follows from `number`; those of slots need as many batch elements.
  stream_mistake(const setup& s, index_t rows, std::size_t number)
      : s_(s),
        kind_(number % (s.B > 1   ? 10
                        : s.B > 0 ? 9
                                  : 5)),
        field_(number / 10 % 5),
        ones_(static_cast<std::size_t>(s.B), 1),
        visible_(static_cast<std::size_t>(rows), 1) {}

  /// Slots as the wrong call names them.
  std::vector<std::int32_t> ids(std::vector<std::int32_t> right, const stream_view<>& slots) const {
    if (kind_ == 4) right.push_back(-1);
    if (kind_ == 6) right[0] = static_cast<std::int32_t>(slots.count());
    if (kind_ == 7) right[0] = -2;
    if (kind_ == 9) right[1] = right[0];
    return right;
  }

  void make(options& o, const stream_view<>& slots) const {
    if (kind_ == 0) o.causal = false;
    if (kind_ == 1) o.first_query = 1;
    if (kind_ == 2)
      o.mask = tensor_view<const std::uint8_t, 1>{visible_.data(), {static_cast<index_t>(visible_.size())}};
    if (kind_ == 3) {
      const auto other =
          s_.call == op::simple ? stream_spec::conv<T>(s_.d, s_.hk, 1) : stream_spec::simple<T>(s_.d, s_.hk);
      o.stream = stream_view{other, slots.data(), slots.count()};
    }
    if (kind_ == 5) o.key_lengths = tensor_view<const std::int64_t, 1>{ones_.data(), {s_.B}};
  }

  /// Runs `call`, which has the mistake. Empty, or what it did otherwise than throw a shape_error; `written` gives the
  /// bytes of its results.
  template <class Call, class Written>
  std::string damage(const stream_view<>& slots, index_t first_slot, const Call& call, const Written& written) const {
    auto* const bytes = static_cast<std::byte*>(slots.data());
    const index_t size = slots.spec().bytes();
    // A byte of each field of the header: magic, version, spec, position, checksum.
    constexpr index_t fields[] = {2, 8, 16, 24, 33};
    std::byte* const torn = kind_ == 8 ? bytes + first_slot * size + fields[field_] : nullptr;
    if (torn != nullptr) *torn ^= std::byte{1};
    const std::vector<std::byte> before(bytes, bytes + slots.count() * size);
    const auto results = written();
    std::string said = "a stream call was accepted that has mistake " + std::to_string(kind_) + "; ";
    try {
      call();
    } catch (const shape_error&) {
      said.clear();
    }
    if (!std::equal(before.begin(), before.end(), bytes)) said += "slots, by a stream call that was refused; ";
    if (results != written()) said += "y, by a stream call that was refused; ";
    if (torn != nullptr) *torn ^= std::byte{1};
    return said;
  }

 private:
  const setup& s_;
  std::size_t kind_, field_;
  std::vector<std::int64_t> ones_;
  std::vector<std::uint8_t> visible_;
};

}  // namespace aft::test
