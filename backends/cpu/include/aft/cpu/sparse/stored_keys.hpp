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

/// e^k and e^k v of a block, [key][channel], and behind the last key a row of zeros for taps that read none; then where
/// each channel's tap leads.
template <class C>
struct stored_workspace {
  C *mass, *weighted;              ///< e^k and e^k v
  C *tap_mass, *tap_weighted;      ///< those that a row's tap reads
  C* least;                        ///< den of a row that is proven
  std::int32_t *places, *offsets;  ///< where each channel's tap reads; its offset on three axes and in places

  static index_t keys(const problem& p, index_t width) { return (p.Tk + 1) * width; }
  static index_t size(const problem& p, index_t width) { return 2 * keys(p, width) + 3 * width; }
  static index_t integers(const problem& p, index_t width) { return (1 + 4 * p.bias.taps.count) * width; }

  stored_workspace(C* memory, std::int32_t* numbers, const problem& p, index_t width)
      : mass(memory),
        weighted(mass + keys(p, width)),
        tap_mass(weighted + keys(p, width)),
        tap_weighted(tap_mass + width),
        least(tap_weighted + width),
        places(numbers),
        offsets(numbers + width) {}
};

template <class C, class T>
class stored_keys {
 public:
  stored_keys(const problem& p, const sparse_taps& taps, const sparse_workspace<C>& own,
              const stored_workspace<C>& stored, const key_sums<C, T>& keys, index_t c0, index_t n)
      : p_(p), taps_(taps), own_(own), stored_(stored), keys_(keys), c0_(c0), n_(n) {}

  /// Units, scales, sums and e^k of all keys; where the taps of each channel lead.
  void prepare() const {
    measure();
    sum();
    place_taps();
  }

  /// num and den of row t; false where some channel's is not proven.
  bool sum_row(index_t t) const {
    // Copies of what the loops use: a vector that is stored might alias the members.
    const index_t width = own_.width;
    C *const den = own_.den, *const num = own_.num, *const failed = own_.failed;
    const C *const all_den = own_.sum_den, *const all_num = own_.sum_num, *const least = stored_.least;
    const C *const tap_mass = stored_.tap_mass, *const tap_weighted = stored_.tap_weighted;
    const sparse_taps::row_place place = taps_.place(t);
    const C *from_den = all_den, *from_num = all_num;
    for (index_t i = 0; i < taps_.count(); ++i) {
      gather(i, place);
      const C* const gains = own_.weights + i * width;
      for (index_t l = 0; l < width; l += lanes<C>) {
        const vec<C> gain = load(gains + l);
        store(den + l, mul_add(gain, load(tap_mass + l), load(from_den + l)));
        store(num + l, mul_add(gain, load(tap_weighted + l), load(from_num + l)));
      }
      from_den = den;
      from_num = num;
    }
    if (taps_.count() == 0) {
      std::copy_n(all_den, width, den);
      std::copy_n(all_num, width, num);
    }
    bool proven = true;
    for (index_t l = 0; l < width; l += lanes<C>) proven = proven & xsimd::all(load(den + l) >= load(least + l));
    if (proven) return true;
    const vec<C> zero(C(0)), one(C(1));
    for (index_t l = 0; l < width; l += lanes<C>)
      store(failed + l, xsimd::select(load(den + l) >= load(least + l), zero, one));
    return false;
  }

 private:
  void measure() const {
    const index_t width = own_.width;
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity()), most(exp_constants<C>::largest);
    std::fill_n(own_.unit, width, -std::numeric_limits<C>::infinity());
    std::fill_n(own_.first_size, width, C(0));
    C *const highest_key = own_.unit, *const largest = own_.first_size;
    keys_.for_visible([&](index_t, const C* k, const C* v) __attribute__((always_inline)) {
      C *const keys = highest_key, *const sizes = largest;
      const index_t n = width;
      for (index_t l = 0; l < n; l += lanes<C>) {
        const vec<C> key = load(k + l), size = (xsimd::abs)(load(v + l));
        const vec<C> counted = xsimd::select(size <= most, size, zero);
        store(keys + l, max_ignoring_nan<C>(load(keys + l), key));
        store(sizes + l, xsimd::max(load(sizes + l), xsimd::select(key == hidden, zero, counted)));
      }
    });
    for (index_t l = 0; l < width; ++l) {
      value_scale(own_.first_size[l], own_.scale[l], own_.inverse_scale[l]);
      own_.first_size[l] *= own_.scale[l];
      const C highest = own_.unit[l];
      // Nothing but NaN is found out by the sums.
      own_.seen[l] = highest == -std::numeric_limits<C>::infinity() ? C(0) : C(1);
      // What lies below the range is then nothing beside the largest key, and all of it is exact.
      // Beside the largest number an average could be rounded to infinity.
      const bool extreme = own_.inverse_scale[l] > C(1) && own_.first_size[l] >= C(1);
      own_.state[l] = !extreme && (own_.seen[l] == C(0) || (highest >= C(-3000) && highest <= exp_constants<C>::range))
                          ? C(0)
                          : C(1);
      if (own_.seen[l] == C(0) || own_.state[l] != C(0)) own_.unit[l] = C(0);
    }
    for (index_t l = 0; l < width; l += lanes<C>) store(own_.unit + l, exponent_of<C>(load(own_.unit + l)));
  }

  void sum() const {
    const index_t width = own_.width;
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
    C* const cleared[] = {own_.sum_den, own_.sum_num, own_.part_den, own_.part_num};
    for (C* const sums : cleared) std::fill_n(sums, width, C(0));
    std::fill_n(stored_.mass + p_.Tk * width, width, C(0));
    std::fill_n(stored_.weighted + p_.Tk * width, width, C(0));
    if (!keys_.all_visible()) {
      std::fill_n(stored_.mass, p_.Tk * width, C(0));
      std::fill_n(stored_.weighted, p_.Tk * width, C(0));
    }
    index_t joined = 0;
    keys_.for_visible([&](index_t s, const C* k, const C* v) __attribute__((always_inline)) {
      C *const mass = stored_.mass + s * width, *const weighted = stored_.weighted + s * width;
      C *const den = own_.part_den, *const num = own_.part_num;
      const C *const scale = own_.scale, *const unit = own_.unit;
      const index_t channels = width;
      for (index_t l = 0; l < channels; l += lanes<C>) {
        const vec<C> key = load(k + l);
        const vec<C> value = xsimd::select(key == hidden, zero, load(v + l) * load(scale + l));
        const vec<C> e = weight_scaled<C>(key, load(unit + l)), x = e * value;
        store(mass + l, e);
        store(weighted + l, x);
        store(den + l, load(den + l) + e);
        store(num + l, load(num + l) + x);
      }
      if (++joined % key_sums<C, T>::together == 0) keys_.join();
    });
    keys_.join();
    for (index_t l = 0; l < width; ++l) {
      if (own_.seen[l] == C(0)) {
        // A channel that sees no key has average 0, if it does not see NaN alone.
        const bool none = own_.sum_den[l] == C(0);
        own_.seen[l] = none ? C(0) : C(1);
        if (none) own_.sum_den[l] = C(1);
      }
      const C three_quarters = C(0.75) * own_.sum_den[l], floor = sizeof(C) == 4 ? C(0x1p-60) : C(0x1p-500);
      // No den is as large as NaN.
      stored_.least[l] = own_.state[l] != C(0) ? std::numeric_limits<C>::quiet_NaN()
                                               : (three_quarters < floor ? floor : three_quarters);
    }
  }

  void place_taps() const {
    const index_t group = p_.d / p_.bias.heads, width = own_.width;
    for (index_t i = 0; i < taps_.count(); ++i)
      for (index_t l = 0; l < width; ++l) {
        const sparse_tap& tap = taps_.of((l < n_ ? c0_ + l : c0_) / group)[i];
        std::int32_t* const to = stored_.offsets + i * 4 * width + l;
        bool reaches = true;
        for (std::size_t a = 0; a < 3; ++a) {
          const index_t extent = taps_.extent(a), offset = tap.offset[a] + (a == 2 ? taps_.sequence_first() : 0);
          const bool within = offset > -extent - p_.Tq && offset < extent + p_.Tq && extent + p_.Tq < INT32_MAX;
          to[static_cast<index_t>(a) * width] = static_cast<std::int32_t>(within ? offset : 0);
          reaches = reaches && within;
        }
        // One that never reads a key leads beyond the first axis.
        if (!reaches) to[0] = static_cast<std::int32_t>(taps_.extent(0));
        to[3 * width] = static_cast<std::int32_t>(reaches ? tap.distance * width + l : l);
      }
  }

  /// e^k and e^k v of the keys that tap i reads for the row, 0 for channels where it reads none.
  void gather(index_t i, const sparse_taps::row_place& place) const {
    const index_t group = p_.d / p_.bias.heads, width = own_.width;
    C* const mass = stored_.tap_mass;
    C* const weighted = stored_.tap_weighted;
    if (group >= lanes<C>) {
      for (index_t l = 0; l < n_;) {
        const index_t h = (c0_ + l) / group, end = min_of(n_, (h + 1) * group - c0_);
        const index_t s = taps_.key(taps_.of(h)[i], place);
        const C* const from = stored_.mass + (s < 0 ? p_.Tk : s) * width;
        const C* const values = stored_.weighted + (s < 0 ? p_.Tk : s) * width;
        for (; l < end; ++l) {
          mass[l] = from[l];
          weighted[l] = values[l];
        }
      }
      return;
    }
    std::int32_t* const places = stored_.places;
    const C *const all_mass = stored_.mass, *const all_weighted = stored_.weighted;
    const std::int32_t* const offsets = stored_.offsets + i * 4 * width;
    const auto nowhere = static_cast<std::int32_t>(p_.Tk * width), row = static_cast<std::int32_t>(place.t * width);
    const auto x0 = static_cast<std::int32_t>(place.x[0]), x1 = static_cast<std::int32_t>(place.x[1]),
               x2 = static_cast<std::int32_t>(place.x[2]);
    const auto n0 = static_cast<std::uint32_t>(taps_.extent(0)), n1 = static_cast<std::uint32_t>(taps_.extent(1)),
               n2 = static_cast<std::uint32_t>(taps_.extent(2));
    for (index_t l = 0; l < width; ++l) {
      // As unsigned numbers: what is below 0 lies beyond the end too.
      const bool inside = (static_cast<std::uint32_t>(x0 + offsets[l]) < n0) &
                          (static_cast<std::uint32_t>(x1 + offsets[width + l]) < n1) &
                          (static_cast<std::uint32_t>(x2 + offsets[2 * width + l]) < n2);
      places[l] = inside ? row + offsets[3 * width + l] : nowhere;
    }
    for (index_t l = 0; l < width; ++l) {
      mass[l] = all_mass[places[l]];
      weighted[l] = all_weighted[places[l]];
    }
  }

  const problem& p_;
  const sparse_taps& taps_;
  const sparse_workspace<C>& own_;
  const stored_workspace<C>& stored_;
  const key_sums<C, T>& keys_;
  index_t c0_, n_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
