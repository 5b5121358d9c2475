// SPDX-License-Identifier: Apache-2.0
/// @file sparse/block.hpp  Rows of a block of channels of a sparse convolution: sums of keys and taps, and what becomes
/// of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "../math/gates.hpp"
#include "../runtime/streaming.hpp"
#include "exact.hpp"
#include "key_sums.hpp"
#include "stored_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Channels [c0, c0 + n) of batch element b. T is the storage type of k and v.
template <class C, class T>
class sparse_block {
 public:
  sparse_block(const problem& p, const sparse_taps& taps, const sparse_workspace<C>& own, index_t b, index_t c0,
               index_t n)
      : p_(p), taps_(taps), own_(own), keys_(p, own, b, c0, n), b_(b), c0_(c0), n_(n) {}

  /// With e^k and e^k v of all keys at hand. Loops take U vectors of channels at a time.
  template <index_t U>
  void run_stored(const stored_workspace<C>& memory, tap_runs<C>& runs) const {
    set_weights();
    runs.place(p_, taps_, c0_, n_);
    const stored_keys<C, T, U> stored(p_, taps_, own_, memory, runs, keys_);
    stored.prepare();
    const bool plain = p_.gate_fn == gate::sigmoid && n_ == own_.width && is_plain(p_.q) && is_plain(p_.y) &&
                       !p_.average.set && !p_.lse.set;
    if (!plain) {
      stored.for_rows([&](index_t t, const std::array<index_t, 3>&) { write_row(t, stored.sum_row()); });
    } else {
      using stored_reading = typename stored_keys<C, T, U>::reading;
      switch (stored.how()) {
        case stored_reading::single: write_plain<stored_reading::single>(stored); break;
        case stored_reading::whole: write_plain<stored_reading::whole>(stored); break;
        case stored_reading::several: write_plain<stored_reading::several>(stored); break;
      }
    }
  }

  void run() const {
    if (p_.excluded || p_.pair_mask()) {
      for (index_t t = 0; t < p_.Tq; ++t) {
        std::fill_n(own_.failed, own_.width, C(1));
        finish(t);
      }
      return;
    }
    set_weights();
    keys_.measure_values();
    if (!p_.causal) keys_.add_all();
    index_t seen = 0;
    for (index_t t = 0; t < p_.Tq; ++t) {
      if (p_.causal)
        for (const index_t end = min_of(t + p_.first_query + 1, keys_.limit()); seen < end; ++seen)
          keys_.add_next(seen);
      sum_row(t);
      finish(t);
    }
  }

 private:
  /// exp(w) - 1 of every tap and channel. NaN sends a row that reads the tap to the definition.
  void set_weights() const {
    const index_t group = p_.d / p_.bias.heads;
    std::fill_n(own_.hides, own_.width, C(0));
    for (index_t i = 0; i < taps_.count(); ++i)
      for (index_t l = 0; l < own_.width; ++l) {
        C& weight = own_.weights[i * own_.width + l];
        weight = C(0);
        if (l >= n_) continue;
        const sparse_tap& tap = taps_.of((c0_ + l) / group)[i];
        weight = tap.value <= largest_tap_value<C> ? static_cast<C>(tap.gain) : std::numeric_limits<C>::quiet_NaN();
        if (tap.value == -std::numeric_limits<double>::infinity()) own_.hides[l] += C(1);
      }
  }

  /// num and den of row t without its taps, and then with them.
  void sum_row(index_t t) const {
    constexpr index_t L = lanes<C>;
    for (index_t l = 0; l < own_.width; l += L) {
      store(own_.den + l, load(own_.sum_den + l) + load(own_.part_den + l));
      store(own_.num + l, load(own_.sum_num + l) + load(own_.part_num + l));
      store(own_.hidden_value + l, vec<C>(C(0)));
    }
    const auto place = taps_.place(t);
    for (index_t i = 0; i < taps_.count(); ++i) {
      if (gather(i, place)) add_tap();
    }
    prove();
  }

  /// Keys and values that tap i reads for the row, and its weights; false where it reads none.
  bool gather(index_t i, const typename sparse_taps::row_place& place) const {
    const index_t group = p_.d / p_.bias.heads;
    const C* const weights = own_.weights + i * own_.width;
    bool any = false;
    for (index_t l = 0; l < n_;) {
      const index_t h = (c0_ + l) / group;
      const index_t end = min_of(n_, (h + 1) * group - c0_);
      const index_t s = taps_.key(taps_.of(h)[i], place);
      if (s >= 0 && keys_.visible(s)) {
        any = true;
        keys_.read(s, l, end);
        std::copy(weights + l, weights + end, own_.weight + l);
      } else {
        std::fill(own_.weight + l, own_.weight + end, C(0));
        std::fill(own_.k + l, own_.k + end, C(0));
        std::fill(own_.v + l, own_.v + end, C(0));
      }
      l = end;
    }
    return any;
  }

  void add_tap() const {
    const vec<C> zero(C(0)), one(C(1));
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      const vec<C> k = load(own_.k + l), weight = load(own_.weight + l);
      // A key that is hidden, or of a tap without effect, may hold anything.
      const auto nothing = (k == vec<C>(-std::numeric_limits<C>::infinity())) | (weight == zero);
      const vec<C> v = xsimd::select(nothing, zero, load(own_.v + l) * load(own_.scale + l));
      const vec<C> term = xsimd::select(nothing, zero, weight * keys_.weight_of(l, k));
      store(own_.den + l, load(own_.den + l) + term);
      store(own_.num + l, mul_add(term, v, load(own_.num + l)));
      // NaN is no number that can be compared, but num is NaN then too.
      const vec<C> size = xsimd::select(weight <= -one, (xsimd::abs)(v), zero);
      store(own_.hidden_value + l, xsimd::max(load(own_.hidden_value + l), size));
    }
  }

  /// failed[l] is not 0 where the row's sums may have lost something.
  void prove() const {
    const vec<C> zero(C(0)), one(C(1)), most(exp_constants<C>::largest);
    const vec<C> least(sizeof(C) == 4 ? C(0x1p-60) : C(0x1p-500));
    for (index_t l = 0; l < own_.width; l += lanes<C>) {
      const vec<C> den = load(own_.den + l), num = load(own_.num + l), hides = load(own_.hides + l);
      const vec<C> first = load(own_.first_size + l), second = load(own_.second_size + l);
      const vec<C> all = load(own_.sum_den + l) + load(own_.part_den + l);
      const auto kept = (den >= vec<C>(C(0.75)) * all) & (den >= least) & (den <= most);
      // Beside what a tap of -inf hides the row has to see a value of about the size that num was rounded to.
      const auto alike = (load(own_.hidden_value + l) < first) | (second * vec<C>(C(4)) >= first);
      const auto shown = (hides == zero) | ((hides == one) & ((xsimd::abs)(num) <= most) & alike);
      const auto sized = first >= least;
      const auto proven = kept & shown & sized & (keys_.sound(l));
      store(own_.failed + l, xsimd::select(proven, zero, one));
    }
  }

  /// From sums to results, where they are not proven by the definition.
  void finish(index_t t) const {
    constexpr index_t L = lanes<C>;
    const vec<C> zero(C(0)), infinity(std::numeric_limits<C>::infinity());
    bool all_proven = true;
    const bool fast = !(p_.excluded || p_.pair_mask());
    for (index_t l = 0; l < own_.width; l += L) {
      all_proven = all_proven && xsimd::all(load(own_.failed + l) == zero);
      if (!fast) continue;
      const vec<C> den = load(own_.den + l), ratio = load(own_.num + l) / den, most = load(own_.first_size + l);
      // An average lies between the values; rounding must not carry it past the largest number.
      const vec<C> size = (xsimd::abs)(ratio);
      const auto beyond = (size > most) & (size < infinity);
      const vec<C> inside = xsimd::select(beyond, xsimd::select(ratio < zero, -most, most), ratio);
      const auto empty = load(own_.seen + l) == zero;
      store(own_.average + l, xsimd::select(empty, zero, inside * load(own_.inverse_scale + l)));
      if (!p_.lse.set) continue;
      const vec<C> log = log_shifted<C>(den * load(own_.key_unit + l), load(own_.unit + l));
      store(own_.lse + l, xsimd::select(empty, -infinity, log));
    }
    if (!all_proven) by_definition(t, fast);
    write(t);
  }

  /// From a row's sums to its results, with one division for both average and gate where the gate is a sigmoid.
  void write_row(index_t t, bool proven) const {
    constexpr index_t L = lanes<C>;
    const bool gated = p_.gate_fn != gate::none, whole = n_ == own_.width;
    const C* q = own_.q;
    if (gated && whole && p_.q.type == dtype_of<C> && p_.q.sc == 1) {
      q = reinterpret_cast<const C*>(address(p_.q, t, c0_));
    } else if (gated) {
      read_strided<C>(p_.q.type, address(p_.q, t, c0_), p_.q.sc, n_, own_.q);
    }
    const bool in_place = p_.y.set && whole && p_.y.type == dtype_of<C> && p_.y.sc == 1 && proven;
    C* const y = in_place ? reinterpret_cast<C*>(address(p_.y, t, c0_)) : own_.y;
    if (p_.gate_fn == gate::sigmoid) {
      // Copies of what the loop uses: a vector that is stored might alias the members.
      const C *const num = own_.num, *const den = own_.den, *const inverse_scale = own_.inverse_scale;
      for (index_t l = 0, width = own_.width; l < width; l += L)
        store(y + l, gated_average<C>(load(num + l), load(den + l), load(inverse_scale + l), load(q + l)));
    } else {
      for (index_t l = 0; l < own_.width; l += L)
        store(y + l, load(own_.num + l) / load(own_.den + l) * load(own_.inverse_scale + l) *
                         gate_value<C>(p_.gate_fn, load(q + l)));
    }
    if (p_.average.set || !proven) {
      for (index_t l = 0; l < own_.width; l += L)
        store(own_.average + l, load(own_.num + l) / load(own_.den + l) * load(own_.inverse_scale + l));
    }
    if (p_.lse.set) {
      const vec<C> zero(C(0)), infinity(std::numeric_limits<C>::infinity());
      for (index_t l = 0; l < own_.width; l += L) {
        const vec<C> log = log_shifted<C>(load(own_.den + l), load(own_.unit + l));
        store(own_.lse + l, xsimd::select(load(own_.seen + l) == zero, -infinity, log));
      }
    }
    if (!proven) {
      by_definition(t, true);
      for (index_t l = 0; l < own_.width; l += L) {
        const vec<C> exact = gate_value<C>(p_.gate_fn, load(q + l)) * load(own_.average + l);
        store(y + l, xsimd::select(load(own_.failed + l) == vec<C>(C(0)), load(y + l), exact));
      }
    }
    write_saved(t);
    if (p_.y.set && !in_place) write_strided<C>(p_.y.type, address(p_.y, t, c0_), p_.y.sc, n_, y);
  }

  void by_definition(index_t t, bool fast) const {
    const index_t group = p_.d / p_.bias.heads;
    index_t head = -1, count = 0;
    for (index_t l = 0; l < n_; ++l) {
      if (own_.failed[l] == C(0)) continue;
      if (fast && own_.seen[l] == C(0)) {
        // A tap that sends rows here by NaN has spoilt also the sums of a channel that sees no key.
        own_.average[l] = C(0);
        continue;
      }
      if (const index_t h = (c0_ + l) / group; h != head) {
        head = h;
        count = tapped_keys(taps_, h, t, own_.tapped);
      }
      const sparse_row row = exact_sparse_row(p_, b_, c0_ + l, t, own_.tapped, count);
      own_.average[l] = static_cast<C>(row.average);
      own_.lse[l] = static_cast<C>(row.lse);
    }
  }

  /// All rows where queries and results lie as the block's channels do.
  template <auto How, index_t U>
  void write_plain(const stored_keys<C, T, U>& stored) const {
    const field &q = p_.q, &y = p_.y;
    const bool streamed = streams();
    stored.for_rows([&](index_t t, const std::array<index_t, 3>& x) __attribute__((always_inline)) {
      const index_t to = b_ * y.sb + x[0] * y.sx[0] + x[1] * y.sx[1] + x[2] * y.sx[2] + c0_;
      const index_t from = b_ * q.sb + x[0] * q.sx[0] + x[1] * q.sx[1] + x[2] * q.sx[2] + c0_;
      write_plain_row<How>(stored, t, reinterpret_cast<const C*>(q.data) + from, reinterpret_cast<C*>(y.data) + to,
                           streamed);
    });
    if (streamed) fence_stores();
  }

  /// With the bits of write_row. q is read no later than y is written, which may be in its place.
  template <auto How, index_t U>
  [[gnu::always_inline]] void write_plain_row(const stored_keys<C, T, U>& stored, index_t t, const C* q, C* y,
                                              bool streamed) const {
    constexpr index_t L = lanes<C>, line = 64 / index_t{sizeof(C)};
    const index_t width = own_.width, next_row = rows_ahead * p_.q.sx[2], step = stored.step(), taps = taps_.count();
    const vec<C> zero(C(0)), shared(shared_gate<C>);
    const C* begin = stored.begin();
    for (index_t l = 0; l < width; l += U * L, q += U * L, y += U * L) {
      for (index_t c = 0; c < U * L; c += line) AFT_PREFETCH(q + next_row + c);
      vec<C> query[U], num[U], den[U], scale[U], size = zero;
      auto proven = zero == zero;
      AFT_UNROLL(4)
      for (index_t j = 0; j < U; ++j, begin += step) {
        const auto row = stored.template sum_vector<How>(begin, l + j * L, taps);
        num[j] = row.num;
        den[j] = row.den;
        scale[j] = row.inverse_scale;
        proven = proven & row.proven;
        query[j] = load(q + j * L);
        size = larger_size<C>(size, query[j]);
      }
      if (!xsimd::all(proven)) [[unlikely]] {
        AFT_UNROLL(4)
        for (index_t j = 0; j < U; ++j) {
          store(own_.q + l + j * L, query[j]);
          store(own_.num + l + j * L, num[j]);
          store(own_.den + l + j * L, den[j]);
        }
        stored.mark_unproven(l, l + U * L);
        write_unproven(t, l, l + U * L, y);
      } else if (xsimd::all(size <= shared)) {
        AFT_UNROLL(4)
        for (index_t j = 0; j < U; ++j) {
          const vec<C> e = exp_near<C, true>(query[j], zero);
          put(y + j * L, exp_minus_quotient<C>(num[j], den[j], e) * scale[j], streamed);
        }
      } else {
        for (index_t j = 0; j < U; ++j) put(y + j * L, gated_average<C>(num[j], den[j], scale[j], query[j]), streamed);
      }
    }
  }

  /// Channels [l, end) of a row, of which own.failed marks some, from own.q, num and den to y.
  [[gnu::noinline]] void write_unproven(index_t t, index_t l, index_t end, C* y) const {
    by_definition(t, true);
    for (; l < end; l += lanes<C>, y += lanes<C>) {
      const vec<C> q = load(own_.q + l);
      const vec<C> sums = gated_average<C>(load(own_.num + l), load(own_.den + l), load(own_.inverse_scale + l), q);
      const vec<C> exact = gate_value<C>(gate::sigmoid, q) * load(own_.average + l);
      store(y, xsimd::select(load(own_.failed + l) == vec<C>(C(0)), sums, exact));
    }
  }

  /// Queries are fetched from memory as many rows before they are read: 0.9 of the time without (Zen 4, 2026-11).
  static constexpr index_t rows_ahead = 8;

  static bool is_plain(const field& f) { return f.set && f.type == dtype_of<C> && f.sc == 1; }

  /// Whether rows of y are whole lines, of more than a cache keeps.
  bool streams() const {
    constexpr index_t line = sizeof(vec<C>);
    constexpr auto size = static_cast<index_t>(sizeof(C));
    const field& y = p_.y;
    const bool whole = reinterpret_cast<std::uintptr_t>(y.data) % line == 0 && y.sb * size % line == 0 &&
                       y.sx[0] * size % line == 0 && y.sx[1] * size % line == 0 && y.sx[2] * size % line == 0;
    return line == 64 && whole && p_.B * p_.Tq * p_.d * size >= streaming_from::output_bytes;
  }

  std::byte* address(const field& f, index_t t, index_t c) const {
    // Without divisions where the rows of a grid follow one another.
    const std::array<index_t, 3>& grid = p_.grid;
    const bool flat = f.sx[1] == grid[2] * f.sx[2] && f.sx[0] == grid[1] * grid[2] * f.sx[2];
    const index_t row = flat ? t * f.sx[2] : position_offset(f, grid, t);
    return f.data + (b_ * f.sb + row + c * f.sc) * size_of(f.type);
  }

  void write_saved(index_t t) const {
    if (p_.average.set) write_strided<C>(p_.average.type, address(p_.average, t, c0_), p_.average.sc, n_, own_.average);
    if (p_.lse.set) {
      const index_t group = p_.d / p_.hk;
      // The first of the channels that share a key writes its lse.
      for (index_t c = ceil_div(c0_, group) * group; c < c0_ + n_; c += group)
        write_strided<C>(p_.lse.type, address(p_.lse, t, c / group), 1, 1, own_.lse + (c - c0_));
    }
  }

  void write(index_t t) const {
    write_saved(t);
    if (!p_.y.set) return;
    if (p_.gate_fn != gate::none) read_strided<C>(p_.q.type, address(p_.q, t, c0_), p_.q.sc, n_, own_.q);
    for (index_t l = 0; l < own_.width; l += lanes<C>)
      store(own_.average + l, gate_value<C>(p_.gate_fn, load(own_.q + l)) * load(own_.average + l));
    write_strided<C>(p_.y.type, address(p_.y, t, c0_), p_.y.sc, n_, own_.average);
  }

  const problem& p_;
  const sparse_taps& taps_;
  const sparse_workspace<C>& own_;
  key_sums<C, T> keys_;
  index_t b_, c0_, n_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
