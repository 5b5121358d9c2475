// SPDX-License-Identifier: Apache-2.0
/// @file sparse/key_sums.hpp  The keys of a block of channels, one by one, and the sums of all that a row sees.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "../math/exp_weight.hpp"
#include "../math/power_of_two.hpp"
#include "taps.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Vectors that go through a loop together: few enough for their sums to stay in registers.
inline constexpr index_t sparse_vectors = 4;

/// Channels of a block: pieces of a row long enough for memory, few enough for what is kept of 200 keys to stay in the
/// second-level cache. 14 x 14 points of 384 channels take 0.92 to 1.04 times as long by 128; by whole rows 0.85
/// to 1.07 times with one head, 0.96 to 1.01 times with 32, but 1.11 to 1.2 times with one for each channel (processor
/// time, Zen 4, 2026-11). Fewer where that makes too few blocks for the threads.
template <class C>
inline index_t sparse_width(const problem& p, int threads) {
  constexpr index_t most = 192, together = sparse_vectors * lanes<C>;
  const index_t share = max_of(index_t{1}, min_of(p.d, p.B * p.d / (2 * threads)));
  const index_t step = share < together ? lanes<C> : together;
  return min_of(most, ceil_div(share, step) * step);
}

/// One number for every channel of a block, of each of these kinds.
template <class C>
struct sparse_workspace {
  C *k, *v, *q, *weight;                 ///< a row of keys, values, queries and tap weights
  C *unit, *sum_den, *sum_num;           ///< of all keys seen, in units of 2^unit; values by scale
  C *key_unit, *per_key_unit;            ///< of the first key within the range, see first_key, and its inverse
  C *part_den, *part_num;                ///< of the latest keys, which have not joined those sums
  C *scale, *inverse_scale;              ///< powers of two
  C *first_size, *second_size;           ///< the two largest |v| scale seen
  C *seen, *state;                       ///< a key, and one beyond the range of the fast sums
  C *den, *num, *hidden_value, *failed;  ///< of a row
  C *average, *lse, *hides, *y;
  C* weights;  ///< of all taps
  tapped_key* tapped;
  index_t width;

  static constexpr index_t arrays = 25;
  static index_t size(const problem& p, index_t width) { return (arrays + p.bias.taps.count) * width; }

  sparse_workspace(C* memory, tapped_key* keys, const problem&, index_t columns) : tapped(keys), width(columns) {
    C** const all[arrays] = {&k,        &v,        &q,        &weight,        &unit,       &sum_den,     &sum_num,
                             &part_den, &part_num, &scale,    &inverse_scale, &first_size, &second_size, &seen,
                             &state,    &den,      &num,      &hidden_value,  &failed,     &average,     &lse,
                             &hides,    &y,        &key_unit, &per_key_unit};
    std::fill_n(memory, arrays * width, C(0));
    for (C** array : all) {
      *array = memory;
      memory += width;
    }
    weights = memory;
  }
};

/// T is the storage type of k and v.
template <class C, class T>
class key_sums {
 public:
  /// Keys are added up by so many before they join the others: the rounding is that of a group and of their number.
  static constexpr index_t together = 16;

  key_sums(const problem& p, const sparse_workspace<C>& own, index_t b, index_t c0, index_t n)
      : p_(p), own_(own), b_(b), c0_(c0), n_(n), limit_(p.key_limit(b)), k_(p.k, p.grid, b), v_(p.v, p.grid, b) {}

  index_t limit() const { return limit_; }
  bool visible(index_t s) const { return s < limit_ && !p_.mask_hides(b_, 0, s); }

  bool all_visible() const { return limit_ >= p_.Tk && p_.mask == nullptr; }

  /// Rows of up to `together` keys that may be seen, in place where storage allows.
  struct key_group {
    std::array<const C*, together> k, v;
    std::array<index_t, together> s;
    index_t count = 0;
    index_t ahead_k = 0, ahead_v = 0;  ///< from a row to that of the next group, 0 where rows are copies
  };

  /// f(key group) for all keys that may be seen, each group full but for the last, until f returns false. `k` and `v`
  /// have room for the rows of one.
  template <class F>
  [[gnu::always_inline]] void for_groups(C* k, C* v, const F& f) const {
    key_group rows;
    if (std::is_same_v<C, T> && in_place()) {
      rows.ahead_k = together * p_.k.sx[2];
      rows.ahead_v = together * p_.v.sx[2];
    }
    for (index_t s = 0; s < limit_; ++s) {
      if (visible(s)) add_row(rows, s, k + rows.count * own_.width, v + rows.count * own_.width);
      if (rows.count < together && (s + 1 < limit_ || rows.count == 0)) continue;
      if (!f(rows)) return;
      rows.count = 0;
    }
  }

  /// k and v of key s for channels [l, end) of the block.
  void read(index_t s, index_t l, index_t end) const {
    const index_t group = p_.d / p_.hk;
    const T* const v = v_.at(s) + (c0_ + l) * p_.v.sc;
    if (group == 1) {
      read_row<C>(k_.at(s) + (c0_ + l) * p_.k.sc, p_.k.sc, end - l, own_.k + l);
    } else {
      const T* const k = k_.at(s);
      for (index_t i = l; i < end; ++i) own_.k[i] = to_compute<C>(k[(c0_ + i) / group * p_.k.sc]);
    }
    read_row<C>(v, p_.v.sc, end - l, own_.v + l);
  }

  /// e^k in the sums' unit. What lies below the range is nothing beside keys within it, see sound().
  vec<C> weight_of(index_t l, const vec<C>& k) const {
    const vec<C> weight = weight_scaled<C>(k, load(own_.unit + l)) * load(own_.per_key_unit + l);
    return xsimd::select(k < vec<C>(-exp_constants<C>::range), vec<C>(C(0)), weight);
  }

  /// Lanes whose sums have lost no key: none is above the range, and those below it are far below the others.
  vec_mask<C> sound(index_t l) const {
    const vec<C> state = load(own_.state + l);
    const auto high = load(own_.unit + l) >= vec<C>(C(-3000));
    return (state == vec<C>(C(0))) | ((state == vec<C>(far_below)) & high);
  }

  /// Before any sum: the power of two that takes the largest value near 1.
  void measure_values() const {
    const index_t width = own_.width;
    std::fill_n(own_.num, width, C(0));
    for (index_t s = 0; s < limit_; ++s) {
      if (!visible(s)) continue;
      read_whole(s);
      for (index_t l = 0; l < width; l += lanes<C>) {
        const vec<C> size = (xsimd::abs)(load(own_.v + l)), most = load(own_.num + l);
        const auto larger = (size > most) & (size <= vec<C>(exp_constants<C>::largest));
        store(own_.num + l, xsimd::select(is_hidden(load(own_.k + l)), most, xsimd::select(larger, size, most)));
      }
    }
    for (index_t l = 0; l < width; ++l) {
      value_scale(own_.num[l], own_.scale[l], own_.inverse_scale[l]);
      // Values that are all 0 need no size.
      own_.first_size[l] = own_.second_size[l] = own_.num[l] == C(0) ? C(1) : C(0);
      own_.unit[l] = no_unit;
      own_.key_unit[l] = own_.per_key_unit[l] = C(1);
    }
    // An array with a name: nvcc 13.0 writes a list in the loop's head that g++ then cannot read.
    C* const cleared[] = {own_.sum_den, own_.sum_num, own_.part_den, own_.part_num, own_.seen, own_.state};
    for (C* const sums : cleared) std::fill_n(sums, width, C(0));
  }

  /// All keys at once: their common unit first.
  void add_all() const {
    for (index_t s = 0; s < limit_; ++s) {
      if (!visible(s)) continue;
      read_whole(s);
      for (index_t l = 0; l < own_.width; l += lanes<C>) raise_unit(l);
    }
    index_t joined = 0;
    for (index_t s = 0; s < limit_; ++s) {
      if (!visible(s)) continue;
      read_whole(s);
      for (index_t l = 0; l < own_.width; l += lanes<C>) add(l);
      if (++joined % together == 0) join();
    }
    join();
  }

  /// Key s after all before it; sums are rescaled where it is larger than those.
  void add_next(index_t s) const {
    if (!visible(s)) return;
    read_whole(s);
    C* const all[] = {own_.sum_den, own_.sum_num, own_.part_den, own_.part_num};
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      const vec<C> before = load(own_.unit + l);
      raise_unit(l);
      const vec<C> factor = pow2<C>(before - load(own_.unit + l));
      for (C* const sums : all) store(sums + l, load(sums + l) * factor);
      add(l);
    }
    // By place, so that bits do not depend on where rows stand.
    if ((s + 1) % together == 0) join();
  }

  /// The latest keys join the others.
  void join() const {
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      store(own_.sum_den + l, load(own_.sum_den + l) + load(own_.part_den + l));
      store(own_.sum_num + l, load(own_.sum_num + l) + load(own_.part_num + l));
      store(own_.part_den + l, vec<C>(C(0)));
      store(own_.part_num + l, vec<C>(C(0)));
    }
  }

 private:
  static constexpr C no_unit = C(-65536);
  /// Of own.state: 0, keys within the range alone; this, some below it; 1, some above it, or NaN.
  static constexpr C far_below = C(0.5);

  /// Where the rows of a field lie.
  struct key_rows {
    const T* first;
    const field* f;
    const std::array<index_t, 3>* grid;
    bool flat;

    key_rows(const field& of, const std::array<index_t, 3>& on, index_t b)
        : first(reinterpret_cast<const T*>(of.data) + b * of.sb),
          f(&of),
          grid(&on),
          flat((on[1] == 1 || of.sx[1] == on[2] * of.sx[2]) && (on[0] == 1 || of.sx[0] == on[1] * on[2] * of.sx[2])) {}
    [[gnu::always_inline]] const T* at(index_t s) const {
      return first + (flat ? s * f->sx[2] : position_offset(*f, *grid, s));
    }
  };

  static vec_mask<C> is_hidden(const vec<C>& k) { return k == vec<C>(-std::numeric_limits<C>::infinity()); }

  void add_row(key_group& rows, index_t s, C* k, C* v) const {
    const auto i = static_cast<std::size_t>(rows.count++);
    rows.s[i] = s;
    if constexpr (std::is_same_v<C, T>) {
      if (in_place()) {
        rows.k[i] = k_.at(s) + c0_;
        rows.v[i] = v_.at(s) + c0_;
        return;
      }
    }
    read_whole(s);
    // Here idle lanes see keys of 0: those of -inf would keep their neighbours from being ordinary.
    std::fill(own_.k + n_, own_.k + own_.width, C(0));
    std::copy_n(own_.k, own_.width, k);
    std::copy_n(own_.v, own_.width, v);
    rows.k[i] = k;
    rows.v[i] = v;
  }

  bool in_place() const { return p_.k.sc == 1 && p_.v.sc == 1 && p_.d == p_.hk && n_ == own_.width; }

  void read_whole(index_t s) const {
    read(s, 0, n_);
    // Idle lanes see nothing.
    std::fill(own_.k + n_, own_.k + own_.width, -std::numeric_limits<C>::infinity());
  }

  /// The key of the row buffer joins the unit and the flags of its channels.
  void raise_unit(index_t l) const {
    const vec<C> k = load(own_.k + l), one(C(1)), range(exp_constants<C>::range);
    const auto hidden = is_hidden(k);
    const auto within = (k >= -range) & (k <= range), below = k < -range;
    const vec<C> unit = load(own_.unit + l), state = load(own_.state + l);
    const auto first = within & (unit == vec<C>(no_unit));
    if (xsimd::any(first)) {
      const vec<C> mantissa = xsimd::select(first, weight_unit<C>(k), load(own_.key_unit + l));
      store(own_.key_unit + l, mantissa);
      store(own_.per_key_unit + l, one / mantissa);
    }
    const vec<C> low = xsimd::select(within, k, -range);
    store(own_.unit + l, xsimd::select(within, xsimd::max(unit, exponent_of<C>(low)), unit));
    store(own_.seen + l, xsimd::select(hidden, load(own_.seen + l), one));
    // NaN is not within and not below either.
    const vec<C> next = xsimd::select(within, state, xsimd::select(below, xsimd::max(state, vec<C>(far_below)), one));
    store(own_.state + l, xsimd::select(hidden, state, next));
  }

  void add(index_t l) const {
    const vec<C> k = load(own_.k + l), zero(C(0));
    const auto hidden = is_hidden(k);
    const vec<C> v = xsimd::select(hidden, zero, load(own_.v + l) * load(own_.scale + l));
    const vec<C> weight = weight_of(l, k);
    store(own_.part_den + l, load(own_.part_den + l) + weight);
    store(own_.part_num + l, mul_add(weight, v, load(own_.part_num + l)));
    const vec<C> size = (xsimd::abs)(v), first = load(own_.first_size + l), second = load(own_.second_size + l);
    const auto finite = size <= vec<C>(exp_constants<C>::largest);
    const vec<C> counted = xsimd::select(finite, size, zero);
    store(own_.first_size + l, xsimd::max(first, counted));
    store(own_.second_size + l, xsimd::max(second, xsimd::min(first, counted)));
  }

  const problem& p_;
  const sparse_workspace<C>& own_;
  index_t b_, c0_, n_, limit_;
  key_rows k_, v_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
