// SPDX-License-Identifier: Apache-2.0
/// @file sparse/tap_runs.hpp  Where the taps of a block of channels read e^k and e^k v for the row at hand.
#pragma once

#include <array>
#include <cstdint>

#include "../simd/vec.hpp"
#include "taps.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Terms are rows of e^k and e^k v, one for each key and one of zeros: a vector of e^k of the first channels, one of
/// e^k v of the same, and so on. Runs are channels side by side that read terms by taps of one head, or one channel
/// each where heads are short.
template <class C>
class tap_runs {
 public:
  static index_t integers(const problem& p, index_t width) { return (3 + 6 * p.bias.taps.count) * width + 1; }
  static index_t numbers(index_t width) { return width; }

  tap_runs(std::int32_t* memory, C* numbers, const problem& p, index_t width) : number_(numbers), width_(width) {
    const index_t each = p.bias.taps.count * width;
    start_ = memory;
    of_ = start_ + width + 1;
    last_ = of_ + width;
    first_ = last_ + width;
    extent_ = first_ + each;
    distance_ = extent_ + each;
    plane_ = distance_ + each;
    line_ = plane_ + each;
    from_ = line_ + each;
  }

  /// Channels [c0, c0 + n) of a problem.
  void place(const problem& p, const sparse_taps& taps, index_t c0, index_t n) {
    const index_t group = p.d / p.bias.heads;
    taps_ = taps.count();
    none_ = static_cast<std::int32_t>(p.Tk * 2 * width_);
    single_ = group < shortest_run;
    count_ = 0;
    for (index_t l = 0; l < n; ++count_) {
      start_[count_] = static_cast<std::int32_t>(l);
      l = single_ ? l + 1 : min_of(n, ((c0 + l) / group + 1) * group - c0);
    }
    // Channels without a tensor behind them read nothing.
    while (single_ && count_ < width_) {
      start_[count_] = static_cast<std::int32_t>(count_);
      ++count_;
    }
    start_[count_] = static_cast<std::int32_t>(width_);
    whole_ = true;
    for (index_t l = 0, r = 0; l < width_; ++l) {
      if (start_[r + 1] <= l) ++r;
      std::int32_t& first = of_[l / lanes<C>];
      if (l % lanes<C> == 0) first = static_cast<std::int32_t>(r);
      last_[l / lanes<C>] = static_cast<std::int32_t>(r);
      number_[l] = static_cast<C>(r - first);
      whole_ = whole_ && r == first;
    }
    for (index_t i = 0; i < taps_; ++i)
      for (index_t r = 0; r < count_; ++r) {
        const index_t l = start_[r], at = i * width_ + r;
        const sparse_tap& tap = taps.of((c0 + min_of(l, n - 1)) / group)[i];
        bool reaches = l < n;
        std::array<index_t, 3> offset = tap.offset;
        offset[2] += taps.sequence_first();
        for (std::size_t a = 0; a < 3; ++a)
          reaches = reaches && offset[a] > -taps.extent(a) - p.Tq && offset[a] < taps.extent(a) + p.Tq;
        // One that never reads a key leads beyond the first axis.
        plane_[at] = static_cast<std::int32_t>(reaches ? offset[0] : taps.extent(0));
        line_[at] = static_cast<std::int32_t>(reaches ? offset[1] : 0);
        first_[at] = static_cast<std::int32_t>(reaches ? -offset[2] : 0);
        distance_[at] = static_cast<std::int32_t>(reaches ? tap.distance * 2 * width_ : 0);
      }
  }

  /// Which taps of a line of queries read keys at all.
  void enter_line(const sparse_taps& taps, index_t plane, index_t line) const {
    for (index_t i = 0; i < taps_; ++i)
      for (index_t at = i * width_; at < i * width_ + count_; ++at) {
        const bool inside = within(plane + plane_[at], taps.extent(0)) && within(line + line_[at], taps.extent(1));
        extent_[at] = static_cast<std::int32_t>(inside ? taps.extent(2) : 0);
      }
  }

  /// Query t of the line, at x on the last axis.
  [[gnu::always_inline]] void enter_row(index_t t, index_t x) const {
    const auto row = static_cast<std::int32_t>(t * 2 * width_), on_axis = static_cast<std::int32_t>(x), none = none_;
    const index_t count = count_;
    for (index_t i = 0; i < taps_; ++i) {
      std::int32_t* const from = from_ + i * width_;
      const std::int32_t *const first = first_ + i * width_, *const extent = extent_ + i * width_,
                                *const distance = distance_ + i * width_;
      for (index_t r = 0; r < count; ++r) {
        const bool inside = static_cast<std::uint32_t>(on_axis - first[r]) < static_cast<std::uint32_t>(extent[r]);
        from[r] = inside ? row + distance[r] : none;
      }
    }
  }

  /// Whether runs are of one channel: read_single serves those.
  bool single() const { return single_; }
  /// Whether no vector has channels of two runs.
  bool whole() const { return whole_; }

  /// e^k and e^k v that tap i reads for the vector of channels at l, from a block of terms. Unless Whole a row of terms
  /// is read for every run in the vector, and lanes of others left out: a copy run by run waits for its own stores.
  template <bool Whole>
  [[gnu::always_inline]] void read(index_t i, index_t l, const C* terms, vec<C>& mass, vec<C>& weighted) const {
    const index_t first = of_[l / lanes<C>];
    const std::int32_t* run = from_ + i * width_ + first;
    const C* at = terms + *run + 2 * l;
    mass = load(at);
    weighted = load(at + lanes<C>);
    if constexpr (!Whole) {
      const index_t others = last_[l / lanes<C>] - first;
      const vec<C> numbers = load(number_ + l);
      for (index_t other = 1; other <= others; ++other) {
        at = terms + *++run + 2 * l;
        const auto later = numbers >= vec<C>(static_cast<C>(other));
        mass = xsimd::select(later, load(at), mass);
        weighted = xsimd::select(later, load(at + lanes<C>), weighted);
      }
    }
  }

  /// A row of terms as all channels of tap i read it, where runs are single.
  [[gnu::always_inline]] void read_single(index_t i, const C* terms, C* to) const {
    constexpr index_t L = lanes<C>;
    const std::int32_t* from = from_ + i * width_;
    for (index_t l = 0, width = width_; l < width; l += L, terms += 2 * L, to += 2 * L, from += L)
      for (index_t j = 0; j < L; ++j) {
        const C* const at = terms + from[j] + j;
        to[j] = at[0];
        to[L + j] = at[L];
      }
  }

 private:
  /// Heads of fewer channels are read channel by channel: a vector would be read for little of it.
  static constexpr index_t shortest_run = lanes<C> < 4 ? lanes<C> : 4;

  static bool within(index_t x, index_t extent) { return x >= 0 && x < extent; }

  std::int32_t* start_;          ///< channel of the block that a run begins with, and behind the last the width
  std::int32_t *of_, *last_;     ///< the runs that each vector begins and ends in
  std::int32_t* first_;          ///< [tap][run], as all below: the query on the last axis whose tap reads its first key
  std::int32_t* extent_;         ///< how many queries from there on read a key: none on lines that lead beyond the grid
  std::int32_t* distance_;       ///< from a query's own row of terms to the one that the tap reads, in numbers
  std::int32_t *plane_, *line_;  ///< offsets on the other axes
  std::int32_t* from_;           ///< the row of terms that the query at hand reads, that of zeros if it reads no key
  C* number_;                    ///< of each channel, how many runs its vector has before its own
  index_t width_, taps_ = 0, count_ = 0;
  std::int32_t none_ = 0;
  bool single_ = false, whole_ = false;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
