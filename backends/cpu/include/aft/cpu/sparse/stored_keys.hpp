// SPDX-License-Identifier: Apache-2.0
/// @file sparse/stored_keys.hpp  Rows that all see the same keys, few enough for e^k and e^k v of a block of channels
/// to stay in the second-level cache: each is made once, and a tap is two numbers to fetch.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "key_sums.hpp"
#include "tap_runs.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Up to so many keys. Of the problem alone, since bits depend on it.
inline constexpr index_t most_stored_keys = 512;

/// What is kept of a block: terms (see tap_runs), and what rows begin with.
template <class C>
struct stored_workspace {
  C* terms;
  C* tap_terms;          ///< those that a row's taps read, [tap], where heads are short
  C* begin;              ///< see begins
  C *highest, *largest;  ///< key, and size of a value, that a channel's sums hold
  C *k, *v;              ///< rows of a group of keys that are not read in place
  C* numbers;            ///< for tap_runs

  static constexpr index_t group = key_sums<C, C>::together;

  /// Vectors that a row begins a vector of channels with: den and num without taps, what den has to be at least, the
  /// scale of values, and exp(w) - 1 of each tap. Side by side, so that one pointer leads to them.
  static index_t begins(const problem& p) { return 4 + p.bias.taps.count; }
  static index_t size(const problem& p, index_t width) {
    return (2 * (p.Tk + 1) + 2 * p.bias.taps.count + begins(p) + 2 + 2 * group) * width + tap_runs<C>::numbers(width);
  }

  stored_workspace(C* memory, const problem& p, index_t width)
      : terms(memory),
        tap_terms(terms + 2 * (p.Tk + 1) * width),
        begin(tap_terms + 2 * p.bias.taps.count * width),
        highest(begin + begins(p) * width),
        largest(highest + width),
        k(largest + width),
        v(k + group * width),
        numbers(v + group * width) {}
};

/// Loops take U vectors of channels at a time.
template <class C, class T, index_t U>
class stored_keys {
 public:
  stored_keys(const problem& p, const sparse_taps& taps, const sparse_workspace<C>& own,
              const stored_workspace<C>& stored, const tap_runs<C>& runs, const key_sums<C, T>& keys)
      : p_(p), taps_(taps), own_(own), stored_(stored), runs_(runs), keys_(keys) {}

  /// Units, scales, sums and e^k of all keys.
  void prepare() const {
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
    const C* const first[] = {own_.sum_den, own_.sum_num, own_.weight, own_.inverse_scale};
    C* to = stored_.begin;
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      for (const C* array : first) store(std::exchange(to, to + lanes<C>), load(array + l));
      for (index_t i = 0; i < taps_.count(); ++i)
        store(std::exchange(to, to + lanes<C>), load(own_.weights + i * own_.width + l));
    }
  }

  /// f(t, x) for every row at x on the grid, whose sums are then asked for.
  template <class F>
  [[gnu::always_inline]] void for_rows(const F& f) const {
    const std::array<index_t, 3> grid = taps_.queries();
    index_t t = 0;
    for (index_t plane = 0; plane < grid[0]; ++plane)
      for (index_t line = 0; line < grid[1]; ++line) {
        runs_.enter_line(taps_, plane, line);
        for (index_t x = 0; x < grid[2]; ++x, ++t) {
          runs_.enter_row(t, x);
          if (runs_.single()) {
            for (index_t i = 0; i < taps_.count(); ++i)
              runs_.read_single(i, stored_.terms, stored_.tap_terms + i * 2 * own_.width);
          }
          f(t, std::array<index_t, 3>{plane, line, x});
        }
      }
  }

  /// How a row reads terms: single channels from its own copy, whole vectors of one run, or vectors of several.
  enum class reading { single, whole, several };
  reading how() const { return runs_.single() ? reading::single : runs_.whole() ? reading::whole : reading::several; }

  /// What a row has for a vector of channels.
  struct row_vector {
    vec<C> num, den, inverse_scale;
    vec_mask<C> proven;
    AFT_RETURNED_IN_PLACE
  };

  /// Loops over vectors go on by `step` from own begin.
  const C* begin() const { return stored_.begin; }
  index_t step() const { return stored_workspace<C>::begins(p_) * lanes<C>; }

  /// The row's sums for the channels from l on, where `begin` is theirs.
  template <reading How>
  [[gnu::always_inline]] row_vector sum_vector(const C* begin, index_t l, index_t taps) const {
    constexpr index_t L = lanes<C>;
    vec<C> den = load(begin), num = load(begin + L);
    for (index_t i = 0; i < taps; ++i) {
      const vec<C> gain = load(begin + (4 + i) * L);
      vec<C> mass, weighted;
      if constexpr (How == reading::single) {
        const C* const at = stored_.tap_terms + 2 * (i * own_.width + l);
        mass = load(at);
        weighted = load(at + L);
      } else {
        runs_.template read<How == reading::whole>(i, l, stored_.terms, mass, weighted);
      }
      den = mul_add(gain, mass, den);
      num = mul_add(gain, weighted, num);
    }
    return {num, den, load(begin + 3 * L), den >= load(begin + 2 * L)};
  }

  /// own.failed for a row of which own.den of channels [l, end) was found wanting.
  void mark_unproven(index_t l, index_t end) const {
    const vec<C> zero(C(0)), one(C(1));
    std::fill_n(own_.failed, own_.width, C(0));
    for (const C* at = begin() + l / lanes<C> * step(); l < end; l += lanes<C>, at += step())
      store(own_.failed + l, xsimd::select(load(own_.den + l) >= load(at + 2 * lanes<C>), zero, one));
  }

  /// own.num and own.den of the row; false where some channel's is not proven, and own.failed tells which.
  bool sum_row() const {
    const vec<C> zero(C(0)), one(C(1));
    const index_t taps = taps_.count();
    bool proven = true;
    const C* at = begin();
    for (index_t l = 0; l < own_.width; l += lanes<C>, at += step()) {
      const row_vector row = how() == reading::single ? sum_vector<reading::single>(at, l, taps)
                                                      : sum_vector<reading::several>(at, l, taps);
      store(own_.num + l, row.num);
      store(own_.den + l, row.den);
      store(own_.failed + l, xsimd::select(row.proven, zero, one));
      proven = proven && xsimd::all(row.proven);
    }
    return proven;
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
    const index_t keys = 2 * p_.Tk * width;
    std::fill_n(stored_.terms + keys, 2 * width, C(0));
    if (!keys_.all_visible()) std::fill_n(stored_.terms, keys, C(0));
    C* const cleared[] = {own_.sum_den, own_.sum_num, stored_.largest};
    for (C* const array : cleared) std::fill_n(array, width, C(0));
    std::fill_n(stored_.highest, width, -std::numeric_limits<C>::infinity());
    keys_.for_groups(
        stored_.k, stored_.v, [&](const auto& rows) __attribute__((always_inline)) {
          for (index_t l = 0; l < width; l += sum_vectors * lanes<C>)
            if (!sum_ordinary(rows, l)) sum_any(rows, l);
          return true;
        });
  }

  /// Sums of so many vectors of channels, and what they are checked by, stay in registers.
  static constexpr index_t sum_vectors = min_of(U, index_t{2});

  /// Keys of a group for channels from l on, where all are finite and near their units: those get the bits that sum_any
  /// gives. False where some are not, and only terms were written then, which sum_any writes again. The next group
  /// is fetched to the second-level cache: parts of rows are not what a processor fetches by itself, and a call from
  /// memory takes 0.8 to 0.88 of the time without, or with the first level, (Zen 4, 2026-11).
  template <class Group>
  [[gnu::always_inline]] bool sum_ordinary(const Group& rows, index_t l) const {
    constexpr index_t V = sum_vectors, L = lanes<C>;
    vec<C> den[V], num[V], highest[V], lowest[V], scale[V], unit[V];
    seen_size<C> sizes[V];
    AFT_UNROLL(4)
    for (index_t j = 0; j < V; ++j) {
      den[j] = num[j] = vec<C>(C(0));
      highest[j] = vec<C>(-std::numeric_limits<C>::infinity());
      lowest[j] = vec<C>(std::numeric_limits<C>::infinity());
      scale[j] = load(own_.scale + l + j * L);
      unit[j] = load(own_.unit + l + j * L);
    }
    const index_t width = own_.width, ahead_k = rows.ahead_k, ahead_v = rows.ahead_v;
    const auto count = static_cast<std::size_t>(rows.count);
    C* const terms = stored_.terms + 2 * l;
    for (std::size_t i = 0; i < count; ++i) {
      const C *const k = rows.k[i] + l, *const v = rows.v[i] + l;
      C* const to = terms + rows.s[i] * 2 * width;
      AFT_UNROLL(4)
      for (index_t j = 0; j < V; ++j) {
        const index_t o = j * L;
        prefetch_second<C>(k + o, ahead_k);
        prefetch_second<C>(v + o, ahead_v);
        const vec<C> key = load(k + o), value = load(v + o);
        highest[j] = max_ignoring_nan<C>(highest[j], key);
        lowest[j] = min_ignoring_nan<C>(lowest[j], key);
        sizes[j].add(value);
        const vec<C> e = exp_near<C>(key, unit[j]), x = e * (value * scale[j]);
        store(to + 2 * o, e);
        store(to + 2 * o + L, x);
        den[j] += e;
        num[j] += x;
      }
    }
    const vec<C> high(nearest_key), low(-nearest_key), log2e(exp_constants<C>::log2e);
    auto ordinary = sizes[0].within(exp_constants<C>::largest);
    AFT_UNROLL(4)
    for (index_t j = 0; j < V; ++j) {
      // As numbers from the unit on: so many powers of two, whatever the unit.
      const vec<C> above = highest[j] * log2e - unit[j];
      const vec<C> below = lowest[j] * log2e - unit[j];
      ordinary = ordinary & sizes[j].within(exp_constants<C>::largest) & (above <= high) & (below >= low);
    }
    if (!xsimd::all(ordinary)) return false;
    AFT_UNROLL(4)
    for (index_t j = 0; j < V; ++j) {
      const index_t o = l + j * L;
      store(own_.sum_den + o, load(own_.sum_den + o) + den[j]);
      store(own_.sum_num + o, load(own_.sum_num + o) + num[j]);
      store(stored_.highest + o, max_ignoring_nan<C>(load(stored_.highest + o), highest[j]));
      store(stored_.largest + o, max_ignoring_nan<C>(load(stored_.largest + o), sizes[j].largest()));
    }
    return true;
  }

  /// Keys that far from their unit, in powers of two, are ordinary: exp_near gives them the bits of weight_scaled.
  static constexpr C nearest_key = C(64);

  /// The same for keys of any kind.
  template <class Group>
  [[gnu::noinline]] void sum_any(const Group& rows, index_t l0) const {
    const index_t width = own_.width;
    const vec<C> zero(C(0)), hidden(-std::numeric_limits<C>::infinity());
    for (index_t l = l0; l < l0 + sum_vectors * lanes<C>; l += lanes<C>) {
      vec<C> den = zero, num = zero, highest = load(stored_.highest + l), largest = load(stored_.largest + l);
      const vec<C> scale = load(own_.scale + l), unit = load(own_.unit + l);
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows.count); ++i) {
        const vec<C> key = load(rows.k[i] + l), stored = load(rows.v[i] + l);
        measure_pair(key, stored, highest, largest);
        const vec<C> value = xsimd::select(key == hidden, zero, stored * scale);
        const vec<C> e = weight_scaled<C>(key, unit), x = e * value;
        C* const to = stored_.terms + 2 * (rows.s[i] * width + l);
        store(to, e);
        store(to + lanes<C>, x);
        den += e;
        num += x;
      }
      store(own_.sum_den + l, load(own_.sum_den + l) + den);
      store(own_.sum_num + l, load(own_.sum_num + l) + num);
      store(stored_.highest + l, highest);
      store(stored_.largest + l, largest);
    }
  }

  /// own.weight: what a row's den has to be for its taps to leave the sums of all keys as exact as they are.
  void judge() const {
    C* const least = own_.weight;
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
      least[l] = extreme || !(sees_none || (highest >= lowest_unit && highest <= exp_constants<C>::range))
                     ? std::numeric_limits<C>::quiet_NaN()
                     : (three_quarters < floor ? floor : three_quarters);
    }
  }

  const problem& p_;
  const sparse_taps& taps_;
  const sparse_workspace<C>& own_;
  const stored_workspace<C> stored_;
  const tap_runs<C>& runs_;
  const key_sums<C, T>& keys_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
