// SPDX-License-Identifier: Apache-2.0
/// @file sparse/stored_keys.hpp  Rows that all see the same keys, few enough for e^k and e^k v of a block of channels
/// to stay in the second-level cache: each is made once, and a tap is two numbers to fetch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "../math/gates.hpp"
#include "key_sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Up to so many keys. Of the problem alone, since bits depend on it.
inline constexpr index_t most_stored_keys = 512;

/// Channels side by side that read keys by taps of one head, or one channel each where heads are short. All but `start`
/// are [tap][run].
struct tap_runs {
  std::int32_t* start;     ///< channel of the block, also [count] where the last one ends
  std::int32_t* first;     ///< the query on the last axis whose tap reads that axis's first key
  std::int32_t* extent;    ///< how many queries from there on read a key: none on lines whose tap leads beyond the grid
  std::int32_t* distance;  ///< from a row of the block to what the tap reads, in numbers
  std::int32_t *plane, *line;  ///< offsets on the other axes
  index_t count = 0;
};

/// e^k and e^k v of a block, [key][channel], and behind the last key a row of zeros for taps that read none; then where
/// each channel's tap leads.
template <class C>
struct stored_workspace {
  C *mass, *weighted;          ///< e^k and e^k v
  C *tap_mass, *tap_weighted;  ///< those that a row's tap reads, and room for what a copy by vectors adds
  C* least;                    ///< den of a row that is proven
  C *highest, *largest;        ///< key, and size of a value, that a channel's sums hold
  C *k, *v;                    ///< rows of a group of keys that are not read in place
  std::int32_t* places;        ///< where each channel's tap reads
  tap_runs runs;

  static constexpr index_t group = key_sums<C, C>::together;

  /// A copy by vectors may read one behind the last number.
  static index_t keys(const problem& p, index_t width) { return (p.Tk + 1) * width + lanes<C>; }
  static index_t size(const problem& p, index_t width) {
    return 2 * keys(p, width) + 5 * width + 2 * lanes<C> + 2 * group * width;
  }
  static index_t integers(const problem& p, index_t width) { return (2 + 5 * p.bias.taps.count) * width + 1; }

  stored_workspace(C* memory, std::int32_t* numbers, const problem& p, index_t width)
      : mass(memory),
        weighted(mass + keys(p, width)),
        tap_mass(weighted + keys(p, width)),
        tap_weighted(tap_mass + width + lanes<C>),
        least(tap_weighted + width + lanes<C>),
        highest(least + width),
        largest(highest + width),
        k(largest + width),
        v(k + group * width),
        places(numbers) {
    const index_t each = p.bias.taps.count * width;
    runs.start = places + width;
    runs.first = runs.start + width + 1;
    runs.extent = runs.first + each;
    runs.distance = runs.extent + each;
    runs.plane = runs.distance + each;
    runs.line = runs.plane + each;
  }
};

/// Loops take U vectors of channels at a time.
template <class C, class T, index_t U>
class stored_keys {
 public:
  stored_keys(const problem& p, const sparse_taps& taps, const sparse_workspace<C>& own,
              const stored_workspace<C>& stored, const key_sums<C, T>& keys, index_t c0, index_t n)
      : p_(p), taps_(taps), own_(own), stored_(stored), runs_(stored.runs), keys_(keys), c0_(c0), n_(n) {}

  /// Units, scales, sums and e^k of all keys; where the taps of each channel lead.
  void prepare() {
    // Units of the first keys do for all of them, unless those are far larger or smaller: a pass less.
    std::fill_n(own_.failed, own_.width, C(1));
    measure(false);
    set_units();
    sum();
    if (!units_fit()) {
      measure(true);
      set_units();
      sum();
    }
    judge();
    place_taps();
  }

  /// f(t, x, proven) for every row at x on the grid, with own.den and own.num; proven where den of all channels is,
  /// else own.failed tells which are not.
  template <class F>
  [[gnu::always_inline]] void for_rows(const F& f) const {
    const std::array<index_t, 3> grid = taps_.queries();
    index_t t = 0;
    for (index_t plane = 0; plane < grid[0]; ++plane)
      for (index_t line = 0; line < grid[1]; ++line) {
        enter_line(plane, line);
        for (index_t x = 0; x < grid[2]; ++x, ++t) f(t, std::array<index_t, 3>{plane, line, x}, sum_row(t, x));
      }
  }

 private:
  /// The largest key and value of each channel: of all keys, or of the first ones.
  void measure(bool all) const {
    const index_t width = own_.width;
    C *const highest = stored_.highest, *const largest = stored_.largest;
    std::fill_n(highest, width, -std::numeric_limits<C>::infinity());
    std::fill_n(largest, width, C(0));
    keys_.for_groups(stored_.k, stored_.v, [&](const auto& rows) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows.count); ++i)
        for (index_t l = 0; l < width; l += lanes<C>) {
          vec<C> key = load(highest + l), size = load(largest + l);
          measure_pair(load(rows.k[i] + l), load(rows.v[i] + l), key, size);
          store(highest + l, key);
          store(largest + l, size);
        }
      return all;
    });
  }

  [[gnu::always_inline]] static void measure_pair(const vec<C>& k, const vec<C>& v, vec<C>& highest, vec<C>& largest) {
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity()), most(exp_constants<C>::largest);
    const vec<C> size = (xsimd::abs)(v);
    highest = max_ignoring_nan<C>(highest, k);
    largest = xsimd::max(largest, xsimd::select((k == hidden) | !(size <= most), zero, size));
  }

  /// The lowest highest key beside which what lies below the range of exp is nothing, and all of it is exact.
  static constexpr C lowest_unit = C(-3000);

  /// Of the channels that are marked in own.failed.
  void set_units() const {
    const vec<C> zero(C(0));
    for (index_t l = 0; l < own_.width; ++l)
      if (own_.failed[l] != C(0)) value_scale(stored_.largest[l], own_.scale[l], own_.inverse_scale[l]);
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      const vec<C> unit = unit_of(load(stored_.highest + l));
      store(own_.unit + l, xsimd::select(load(own_.failed + l) == zero, load(own_.unit + l), unit));
    }
  }

  static vec<C> unit_of(const vec<C>& highest) {
    const auto in_range = (highest >= vec<C>(lowest_unit)) & (highest <= vec<C>(exp_constants<C>::range));
    return exponent_of<C>(xsimd::select(in_range, highest, vec<C>(C(0))));
  }

  /// Whether keys and values are near their units, powers of two of which any gives the same bits. Marks the channels
  /// in own.failed where not: those alone get others, so that no channel's bits depend on its neighbours.
  bool units_fit() const {
    const vec<C> most(C(32)), above_all(C(0x1p32)), below_all(C(0x1p-32)), zero(C(0)), one(C(1));
    bool fit = true;
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      const vec<C> size = load(stored_.largest + l) * load(own_.scale + l);
      const vec<C> above = unit_of(load(stored_.highest + l)) - load(own_.unit + l);
      const auto fits = ((xsimd::abs)(above) <= most) & (size <= above_all) & ((size >= below_all) | (size == zero));
      store(own_.failed + l, xsimd::select(fits, zero, one));
      fit = fit && xsimd::all(fits);
    }
    return fit;
  }

  void sum() const {
    const index_t width = own_.width;
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
    C *const all_mass = stored_.mass, *const all_weighted = stored_.weighted;
    C *const sum_den = own_.sum_den, *const sum_num = own_.sum_num;
    C *const all_highest = stored_.highest, *const all_largest = stored_.largest;
    const C *const all_scales = own_.scale, *const all_units = own_.unit;
    const index_t nothing = p_.Tk * width;
    std::fill_n(all_mass + nothing, width + lanes<C>, C(0));
    std::fill_n(all_weighted + nothing, width + lanes<C>, C(0));
    if (!keys_.all_visible()) {
      std::fill_n(all_mass, nothing, C(0));
      std::fill_n(all_weighted, nothing, C(0));
    }
    C* const cleared[] = {sum_den, sum_num, all_largest};
    for (C* const array : cleared) std::fill_n(array, width, C(0));
    std::fill_n(all_highest, width, -std::numeric_limits<C>::infinity());
    keys_.for_groups(
        stored_.k, stored_.v, [&](const auto& rows) __attribute__((always_inline)) {
          const auto count = static_cast<std::size_t>(rows.count);
          for (index_t l = 0; l < width; l += U * lanes<C>) {
            vec<C> den[U], num[U], highest[U], largest[U];
            const C *const scale = all_scales + l, *const unit = all_units + l;
            AFT_UNROLL(4)
            for (index_t j = 0; j < U; ++j) {
              den[j] = num[j] = zero;
              highest[j] = load(all_highest + l + j * lanes<C>);
              largest[j] = load(all_largest + l + j * lanes<C>);
            }
            for (std::size_t i = 0; i < count; ++i) {
              const C *const k = rows.k[i] + l, *const v = rows.v[i] + l;
              C *const mass = all_mass + rows.s[i] * width + l, *const weighted = all_weighted + rows.s[i] * width + l;
              AFT_UNROLL(4)
              for (index_t j = 0; j < U; ++j) {
                const index_t o = j * lanes<C>;
                const vec<C> key = load(k + o), stored = load(v + o);
                measure_pair(key, stored, highest[j], largest[j]);
                const vec<C> value = xsimd::select(key == hidden, zero, stored * load(scale + o));
                const vec<C> e = weight_scaled<C>(key, load(unit + o)), x = e * value;
                store(mass + o, e);
                store(weighted + o, x);
                den[j] += e;
                num[j] += x;
              }
            }
            AFT_UNROLL(4)
            for (index_t j = 0; j < U; ++j) {
              const index_t o = l + j * lanes<C>;
              store(sum_den + o, load(sum_den + o) + den[j]);
              store(sum_num + o, load(sum_num + o) + num[j]);
              store(all_highest + o, highest[j]);
              store(all_largest + o, largest[j]);
            }
          }
          return true;
        });
  }

  /// What a row's den has to be for its taps to leave the sums of all keys as exact as they are.
  void judge() const {
    for (index_t l = 0; l < own_.width; ++l) {
      const C highest = stored_.highest[l];
      const bool sees_none = highest == -std::numeric_limits<C>::infinity();
      // Beside the largest number an average could be rounded to infinity.
      const bool extreme = stored_.largest[l] >= (sizeof(C) == 4 ? C(0x1p126) : C(0x1p1022));
      // NaN alone leaves the highest key as none does, but not its sum.
      const bool none = sees_none && own_.sum_den[l] == C(0);
      own_.seen[l] = none ? C(0) : C(1);
      if (none) own_.sum_den[l] = C(1);
      const C three_quarters = C(0.75) * own_.sum_den[l], floor = sizeof(C) == 4 ? C(0x1p-60) : C(0x1p-500);
      // No den is as large as NaN.
      stored_.least[l] = extreme || !(sees_none || (highest >= lowest_unit && highest <= exp_constants<C>::range))
                             ? std::numeric_limits<C>::quiet_NaN()
                             : (three_quarters < floor ? floor : three_quarters);
    }
  }

  /// Heads of fewer channels are fetched channel by channel: a vector would be copied for little of it.
  static constexpr index_t shortest_run = lanes<C> < 4 ? lanes<C> : 4;

  void place_taps() {
    const index_t group = p_.d / p_.bias.heads, width = own_.width;
    runs_.count = 0;
    for (index_t l = 0; l < n_; ++runs_.count) {
      runs_.start[runs_.count] = static_cast<std::int32_t>(l);
      l = group < shortest_run ? l + 1 : min_of(n_, ((c0_ + l) / group + 1) * group - c0_);
    }
    // Channels without a tensor behind them read nothing.
    if (group < shortest_run) {
      while (runs_.count < width) {
        runs_.start[runs_.count] = static_cast<std::int32_t>(runs_.count);
        ++runs_.count;
      }
    }
    runs_.start[runs_.count] = static_cast<std::int32_t>(width);
    for (index_t i = 0; i < taps_.count(); ++i)
      for (index_t r = 0; r < runs_.count; ++r) {
        const index_t l = runs_.start[r], at = i * width + r;
        const sparse_tap& tap = taps_.of((c0_ + min_of(l, n_ - 1)) / group)[i];
        bool reaches = l < n_;
        std::array<index_t, 3> offset = tap.offset;
        offset[2] += taps_.sequence_first();
        for (std::size_t a = 0; a < 3; ++a)
          reaches = reaches && offset[a] > -taps_.extent(a) - p_.Tq && offset[a] < taps_.extent(a) + p_.Tq;
        // One that never reads a key leads beyond the first axis.
        runs_.plane[at] = static_cast<std::int32_t>(reaches ? offset[0] : taps_.extent(0));
        runs_.line[at] = static_cast<std::int32_t>(reaches ? offset[1] : 0);
        runs_.first[at] = static_cast<std::int32_t>(reaches ? -offset[2] : 0);
        runs_.distance[at] = static_cast<std::int32_t>((reaches ? tap.distance * width : 0) + l);
      }
  }

  static bool within(index_t x, index_t extent) { return x >= 0 && x < extent; }

  /// Which taps of a line of queries read keys at all.
  void enter_line(index_t plane, index_t line) const {
    const index_t width = own_.width;
    for (index_t i = 0; i < taps_.count(); ++i)
      for (index_t at = i * width; at < i * width + runs_.count; ++at) {
        const bool inside =
            within(plane + runs_.plane[at], taps_.extent(0)) && within(line + runs_.line[at], taps_.extent(1));
        runs_.extent[at] = static_cast<std::int32_t>(inside ? taps_.extent(2) : 0);
      }
  }

  /// num and den of row t, at x on the last axis; false where some channel's is not proven.
  [[gnu::always_inline]] bool sum_row(index_t t, index_t x) const {
    // Copies of what the loops use: a vector that is stored might alias the members.
    const index_t width = own_.width, taps = taps_.count();
    C *const den = own_.den, *const num = own_.num, *const failed = own_.failed;
    const C *const least = stored_.least, *const mass = stored_.tap_mass, *const weighted = stored_.tap_weighted;
    const C *from_den = own_.sum_den, *from_num = own_.sum_num, *gains = own_.weights;
    if (taps == 0) {
      std::copy_n(from_den, width, den);
      std::copy_n(from_num, width, num);
    }
    for (index_t i = 0; i < taps; ++i, from_den = den, from_num = num, gains += width) {
      if (runs_.count == width) {
        gather_channels(i, t, x);
      } else {
        copy_runs(i, t, x);
      }
      for (index_t l = 0; l < width; l += lanes<C>) {
        store(den + l, mul_add(load(gains + l), load(mass + l), load(from_den + l)));
        store(num + l, mul_add(load(gains + l), load(weighted + l), load(from_num + l)));
      }
    }
    auto kept = load(den) >= load(least);
    for (index_t l = lanes<C>; l < width; l += lanes<C>) kept = kept & (load(den + l) >= load(least + l));
    if (xsimd::all(kept)) return true;
    for (index_t l = 0; l < width; l += lanes<C>)
      store(failed + l, xsimd::select(load(den + l) >= load(least + l), vec<C>(C(0)), vec<C>(C(1))));
    return false;
  }

  /// Where run r of tap i reads for row t, whose place on the last axis is x.
  [[gnu::always_inline]] std::int32_t place(index_t at, std::int32_t row, std::int32_t x, std::int32_t none) const {
    const bool inside = static_cast<std::uint32_t>(x - runs_.first[at]) < static_cast<std::uint32_t>(runs_.extent[at]);
    return inside ? row + runs_.distance[at] : none;
  }

  [[gnu::always_inline]] void gather_channels(index_t i, index_t t, index_t x) const {
    const index_t width = own_.width;
    const auto row = static_cast<std::int32_t>(t * width), on_axis = static_cast<std::int32_t>(x),
               none = static_cast<std::int32_t>(p_.Tk * width);
    std::int32_t* const places = stored_.places;
    C *const mass = stored_.tap_mass, *const weighted = stored_.tap_weighted;
    const C *const all_mass = stored_.mass, *const all_weighted = stored_.weighted;
    for (index_t l = 0; l < width; ++l) places[l] = place(i * width + l, row, on_axis, none);
    for (index_t l = 0; l < width; ++l) {
      mass[l] = all_mass[places[l]];
      weighted[l] = all_weighted[places[l]];
    }
  }

  /// By whole vectors: what a run's copy writes behind its end is the next one's.
  [[gnu::always_inline]] void copy_runs(index_t i, index_t t, index_t x) const {
    const index_t width = own_.width;
    const auto row = static_cast<std::int32_t>(t * width), on_axis = static_cast<std::int32_t>(x),
               none = static_cast<std::int32_t>(p_.Tk * width);
    C *const mass = stored_.tap_mass, *const weighted = stored_.tap_weighted;
    const C *const all_mass = stored_.mass, *const all_weighted = stored_.weighted;
    const std::int32_t* const start = runs_.start;
    const index_t count = runs_.count;
    for (index_t r = 0; r < count; ++r) {
      const index_t from = place(i * width + r, row, on_axis, none) - start[r];
      for (index_t l = start[r]; l < start[r + 1]; l += lanes<C>) {
        store(mass + l, load(all_mass + from + l));
        store(weighted + l, load(all_weighted + from + l));
      }
    }
  }

  const problem& p_;
  const sparse_taps& taps_;
  const sparse_workspace<C>& own_;
  const stored_workspace<C>& stored_;
  tap_runs runs_;
  const key_sums<C, T>& keys_;
  index_t c0_, n_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
