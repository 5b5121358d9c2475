// SPDX-License-Identifier: Apache-2.0
/// @file strided.hpp  Storage in every layout a caller may use, with a watch over the elements between and around.
#pragma once

#include <aft/core/views/any_view.hpp>

#include "tensor_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace aft::test {

/// How a tensor lies in memory. `broadcast` is stride 0 on the first axis and is for inputs only. `time_first` is (T,
/// B, C) as (B, T, C), each row padded to whole vectors. `unused_high` and `unused_low` are row-major with the largest
/// or the lowest number for every stride that leads to no element.
enum class layout {
  row_major,
  padded,
  channels_first,
  misaligned,
  reversed,
  interleaved,
  broadcast,
  time_first,
  unused_high,
  unused_low
};

/// A switch, not a table, so that compilers name the enumerator that has no case.
constexpr const char* name_of(layout form) {
  switch (form) {
    case layout::row_major: return "row_major";
    case layout::padded: return "padded";
    case layout::channels_first: return "channels_first";
    case layout::misaligned: return "misaligned";
    case layout::reversed: return "reversed";
    case layout::interleaved: return "interleaved";
    case layout::broadcast: return "broadcast";
    case layout::time_first: return "time_first";
    case layout::unused_high: return "unused_high";
    case layout::unused_low: return "unused_low";
  }
  return "unknown";
}

/// Every bit pattern of an untouched element starts so. It is a NaN in all four storage types: an input element that
/// is read although it belongs to no view, and an output element that is not written, both show in the results.
struct sentinel {
  unsigned char bytes[2];
};
/// Two, because arithmetic keeps a NaN's bits: what gaps of inputs give must not look like an untouched gap of outputs.
inline constexpr sentinel of_inputs{{0xf5, 0x7f}}, of_outputs{{0xf7, 0x7f}};

/// Owns the storage of a tensor of run-time rank and knows which of its elements the view reaches.
template <class T>
class strided {
 public:
  strided() = default;

  strided(std::vector<index_t> extents, layout form)
      : extents_(std::move(extents)), strides_(extents_.size()), form_(form) {
    const std::size_t rank = extents_.size();
    std::vector<std::size_t> order(rank);  // axes from the slowest to the fastest
    for (std::size_t i = 0; i < rank; ++i) order[i] = i;
    if (form == layout::channels_first && rank >= 2) std::swap(order[rank - 1], order[rank - 2]);
    if (form == layout::time_first && rank >= 3) std::swap(order[0], order[1]);
    index_t step = form == layout::interleaved ? 2 : 1;
    for (std::size_t i = rank; i-- > 0;) {
      strides_[order[i]] = step;
      step *= extents_[order[i]];
      if (form == layout::padded) step += 3;
      // So that the next batch element's row begins where a whole vector would, whatever the number of lanes.
      if (form == layout::time_first && i + 1 == rank) step = (step + 15) / 16 * 16;
    }
    if (form == layout::broadcast && rank >= 2) strides_[0] = 0;
    index_t first = guard + (form == layout::misaligned ? 1 : 0);
    if (form == layout::reversed) {
      for (std::size_t i = 0; i < rank; ++i) {
        first += extents_[i] > 0 ? strides_[i] * (extents_[i] - 1) : 0;
        strides_[i] = -strides_[i];
      }
    }
    origin_ = first;
    storage_.resize(static_cast<std::size_t>(step + 2 * guard + 1));
    fill(of_outputs);
  }

  const std::vector<index_t>& extents() const { return extents_; }

  /// Calls f(element) for every element in row-major order.
  template <class F>
  void each(F f) {
    each_run([&](index_t first, index_t count, index_t step) {
      T* element = storage_.data() + first;
      for (index_t i = 0; i < count; ++i, element += step) f(*element);
    });
  }

  /// Stores row-major values, rounded to T once.
  template <class S>
  void assign(const std::vector<S>& source) {
    fill(of_inputs);
    if (static_cast<index_t>(source.size()) < count()) throw std::logic_error("strided::assign: too few values");
    const S* from = source.data();
    each([&](T& x) {
      if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
        x = static_cast<T>(*from++);
      } else {
        x = T(static_cast<float>(*from++));
      }
    });
  }

  /// Row-major values; long double holds every element type exactly.
  std::vector<long double> read() {
    std::vector<long double> result(static_cast<std::size_t>(count()));
    long double* to = result.data();
    each([&](T& x) { *to++ = static_cast<long double>(x); });
    return result;
  }

  template <std::size_t Rank, class U = T, class Space = host_space>
  tensor_view<U, Rank, Space> view() {
    if (Rank != extents_.size()) throw std::logic_error("strided::view: wrong rank");
    std::array<index_t, Rank> extents{}, strides{};
    for (std::size_t i = 0; i < Rank; ++i) {
      extents[i] = extents_[i];
      strides[i] = leads_nowhere(i) ? unused() : strides_[i];
    }
    return {storage_.data() + origin_, extents, strides};
  }

  template <std::size_t Rank, class Space = host_space>
  tensor_view<const T, Rank, Space> in() {
    return view<Rank, const T, Space>();
  }

  template <class Space = host_space>
  any_view any() {
    switch (extents_.size()) {
      case 1: return view<1, T, Space>();
      case 2: return view<2, T, Space>();
      case 3: return view<3, T, Space>();
      case 4: return view<4, T, Space>();
      case 5: return view<5, T, Space>();
      default: throw std::logic_error("strided::any: unsupported rank");
    }
  }

  /// All of the memory, with what lies around the view.
  std::span<T> storage() { return storage_; }

  /// True when no element outside the view has been written.
  bool surroundings_intact() {
    strided without = *this;
    without.each_run([&](index_t first, index_t count, index_t step) {
      for (index_t i = 0; i < count; ++i) without.clear(first + i * step);
    });
    return without.untouched();
  }

  /// True when nothing at all has been written.
  bool untouched() const {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(storage_.data());
    const std::size_t size = storage_.size() * sizeof(T), period = sizeof gap_.bytes;
    if (size < period) return true;
    return std::memcmp(bytes, gap_.bytes, period) == 0 && std::memcmp(bytes, bytes + period, size - period) == 0;
  }

  /// The bits of the whole storage, to see that an input was left as it was. Not inlined: GCC 12 takes the vector's
  /// memory for none of the heap's where it compares two of them (-Wfree-nonheap-object).
  [[gnu::noinline]] std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> result(storage_.size() * sizeof(T));
    if (!result.empty()) std::memcpy(result.data(), storage_.data(), result.size());
    return result;
  }

 private:
  static constexpr index_t guard = 64;

  index_t unused() const { return form_ == layout::unused_high ? INT64_MAX : INT64_MIN; }
  bool leads_nowhere(std::size_t axis) const {
    if (form_ != layout::unused_high && form_ != layout::unused_low) return false;
    bool has_elements = true;
    for (index_t e : extents_) has_elements = has_elements && e != 0;
    return !has_elements || extents_[axis] == 1;
  }

  index_t count() const {
    index_t all = 1;
    for (index_t e : extents_) all *= e;
    return all;
  }

  /// Calls f(first, n, step) for the elements along the last axis, row after row: tests spend as much time on their
  /// tensors as on calls, so the place of an element is not worked out from its number.
  template <class F>
  void each_run(F f) const {
    const std::size_t rank = extents_.size();
    if (storage_.empty() || count() == 0) return;
    if (rank == 0) return f(origin_, 1, 1);
    std::vector<index_t> at(rank, 0);
    index_t first = origin_;
    for (;;) {
      f(first, extents_[rank - 1], strides_[rank - 1]);
      std::size_t axis = rank - 1;
      while (axis > 0 && at[axis - 1] + 1 == extents_[axis - 1]) {
        first -= at[axis - 1] * strides_[axis - 1];
        at[axis - 1] = 0;
        --axis;
      }
      if (axis == 0) return;
      ++at[axis - 1];
      first += strides_[axis - 1];
    }
  }

  /// Writes the gap's bytes over all, each time as many as there are.
  void fill(sentinel gap) {
    gap_ = gap;
    auto* const bytes = reinterpret_cast<unsigned char*>(storage_.data());
    const std::size_t size = storage_.size() * sizeof(T);
    if (size == 0) return;
    std::size_t done = std::min(size, sizeof gap.bytes);
    std::memcpy(bytes, gap.bytes, done);
    for (std::size_t more; done < size; done += more) {
      more = std::min(done, size - done);
      std::memcpy(bytes + done, bytes, more);
    }
  }

  /// Writes the gap's bytes over one element.
  void clear(index_t element) {
    auto* const bytes = reinterpret_cast<unsigned char*>(storage_.data() + element);
    const std::size_t first = static_cast<std::size_t>(element) * sizeof(T);
    for (std::size_t j = 0; j < sizeof(T); ++j) bytes[j] = gap_.bytes[(first + j) % sizeof gap_.bytes];
  }

  std::vector<index_t> extents_, strides_;
  layout form_ = layout::row_major;
  index_t origin_ = 0;
  sentinel gap_ = of_outputs;
  std::vector<T, tensor_allocator<T>> storage_;
};

}  // namespace aft::test
