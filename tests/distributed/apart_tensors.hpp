// SPDX-License-Identifier: Apache-2.0
/// @file apart_tensors.hpp  Tensors of a call on an emulated device in memory that the host cannot touch while ranks
/// run, so that what ranks read without a copy is seen.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "call/strided.hpp"

#if defined(AFT_TEST_DEVICE)
#include <device_emulator.hpp>
#endif

namespace aft::test {

/// Of aft::cpu: tensors are where they are.
template <class Space>
class apart_tensors {
 public:
  template <class T>
  void add(strided<T>&) {}
  template <class View>
  View moved(const View& v) const {
    return v;
  }
  template <class F>
  void with_all_apart(const F& f) {
    f();
  }
};

#if defined(AFT_TEST_DEVICE)
template <>
class apart_tensors<device_space> {
 public:
  /// The tensor stays where it is until ranks run.
  template <class T>
  void add(strided<T>& t) {
    const auto bytes = std::as_writable_bytes(t.storage());
    if (!bytes.empty()) all_.push_back({bytes.data(), nullptr, bytes.size()});
  }

  /// The view of the same elements where they are while ranks run.
  template <class T, std::size_t Rank>
  tensor_view<T, Rank, device_space> moved(const tensor_view<T, Rank, device_space>& v) const {
    return {static_cast<T*>(moved(v.data())), v.extents(), v.strides()};
  }
  any_view moved(const any_view& v) const {
    if (v.empty()) return v;
    index_t extents[any_view::max_rank] = {}, strides[any_view::max_rank] = {};
    for (std::size_t i = 0; i < v.rank(); ++i) {
      extents[i] = v.extent(i);
      strides[i] = v.stride(i);
    }
    return {moved(v.data()), v.type(), v.rank(), extents, strides, true};
  }

  /// Calls f with the tensors apart.
  template <class F>
  void with_all_apart(const F& f) {
    for (piece& p : all_) {
      p.apart = static_cast<std::byte*>(emulator::take_apart(p.bytes));
      std::memcpy(p.apart, p.here, p.bytes);
    }
    emulator::keep_apart(true);
    f();
    emulator::keep_apart(false);
    for (piece& p : all_) {
      std::memcpy(p.here, p.apart, p.bytes);
      emulator::give_apart();
    }
  }

 private:
  struct piece {
    std::byte *here, *apart;
    std::size_t bytes;
  };

  void* moved(const void* p) const {
    const auto* const at = static_cast<const std::byte*>(p);
    for (const piece& one : all_)
      if (at >= one.here && at <= one.here + one.bytes) return one.apart + (at - one.here);
    return const_cast<void*>(p);
  }

  std::vector<piece> all_;
};
#endif

}  // namespace aft::test
