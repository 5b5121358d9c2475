// SPDX-License-Identifier: Apache-2.0
/// @file stream/view.hpp  Slots in memory of the caller's, and the same with the space as a value.
#pragma once

#include <concepts>

#include "spec.hpp"

namespace aft {

/// `count` slots of a spec, one after the other: slot i lies i * spec.bytes() bytes behind `data`, which is aligned to
/// 64 bytes. Non-owning. What a slot holds is plain bytes: one may be copied, saved and restored between calls, also on
/// another machine of the same byte order and library version, and continues there within the accuracy of any call.
/// aft::reset makes a slot of any bytes.
template <class Space = host_space>
class stream_view {
 public:
  [[gnu::always_inline]] constexpr stream_view() = default;
  /// `count` slots from `data` on, of any type of integer. Nothing is looked at before a call.
  template <std::integral N>
  [[gnu::always_inline]] constexpr stream_view(const stream_spec& spec, void* data, N count)
      : stream_view(spec, data, static_cast<index_t>(count)) {}
  /// The same for what converts to a number of slots, as enumerators do.
  [[gnu::always_inline]] constexpr stream_view(const stream_spec& spec, void* data, index_t count)
      : spec_(spec), data_(data), count_(count) {}
  /// What the slots are of.
  [[gnu::always_inline]] constexpr const stream_spec& spec() const { return spec_; }
  /// Slot 0.
  [[gnu::always_inline]] constexpr void* data() const { return data_; }
  /// The number of slots.
  [[gnu::always_inline]] constexpr index_t count() const { return count_; }

 private:
  stream_spec spec_{};
  void* data_ = nullptr;
  index_t count_ = 0;
};

/// A stream_view of either space, or none: what options hold.
class any_stream {
 public:
  [[gnu::always_inline]] constexpr any_stream() = default;
  /// The same slots.
  template <class Space>
  [[gnu::always_inline]] constexpr any_stream(const stream_view<Space>& v)
      : spec_(v.spec()),
        data_(v.data()),
        count_(v.count()),
        set_(true),
        on_device_(std::is_same_v<Space, device_space>) {}
  /// True where no stream was given.
  [[gnu::always_inline]] constexpr bool empty() const { return !set_; }
  /// What the slots are of.
  [[gnu::always_inline]] constexpr const stream_spec& spec() const { return spec_; }
  /// Slot 0.
  [[gnu::always_inline]] constexpr void* data() const { return data_; }
  /// The number of slots.
  [[gnu::always_inline]] constexpr index_t count() const { return count_; }
  /// True where it was made from a view in device_space.
  [[gnu::always_inline]] constexpr bool on_device() const { return on_device_; }

 private:
  stream_spec spec_{};
  void* data_ = nullptr;
  index_t count_ = 0;
  bool set_ = false, on_device_ = false;
};

}  // namespace aft
