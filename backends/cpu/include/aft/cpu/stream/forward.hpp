// SPDX-License-Identifier: Apache-2.0
/// @file stream/forward.hpp  A call that goes on from slots: positions in
/// order, for a slot and a block of channels each.
#pragma once

#include <aft/core/stream/slot_header.hpp>

#include "../runtime/parallel.hpp"
#include "../softmax/padding.hpp"
#include "rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

/// How a call's channels are dealt out.
template <class C>
struct channel_blocks {
  index_t width = 0, count = 0;

  /// Blocks end where 64 bytes do, in slots and, where heads do too, everywhere
  /// else: no vector has two threads' channels. 128 channels of a window of 32
  /// stay in the first-level cache while a chunk of positions goes by.
  channel_blocks(const problem& p, index_t elements, int threads) {
    // A generated row is asked for once, not for each block.
    const bool whole = p.bias.kind == bias_kind::generated || (p.bias.heads > 1 && p.d / p.bias.heads % 16 != 0);
    constexpr index_t most = 128, least = 64;
    width = p.d;
    if (!whole && (p.Tq > 1 || elements < threads))
      width =
          min_of(p.d, p.Tq > 1 ? most : max_of(least, round_up(ceil_div(p.d, static_cast<index_t>(threads)), least)));
    count = width == 0 ? 0 : ceil_div(p.d, width);
  }
};

/// Rows of one call through the buffers of one thread.
template <class C>
class stream_worker {
 public:
  /// Heads whose weights are kept from row to row.
  static constexpr index_t most_heads = 16;
  /// Rows that folded_rows takes at a time: what they read and write of 128
  /// channels fits the first-level cache.
  static constexpr index_t staged = 16;

  static index_t room(const problem& p, index_t width, index_t reach) {
    const index_t line = round_up(width, lanes<C>) + lanes<C>;
    const index_t rows = p.stream->spec.reach() < 0 ? min_of(p.Tq, staged) : 0;
    return (7 + 6 * rows) * line + joint_rows<C>::room(line) + weight_sets(p, width) * weight_rows<C>::room(p, reach);
  }
  stream_worker(const problem& p, C* buffer, index_t width, index_t reach)
      : p_(p), reach_(reach), sets_(weight_sets(p, width)), together_(buffer, round_up(width, lanes<C>) + lanes<C>) {
    line_ = round_up(width, lanes<C>) + lanes<C>;
    buffer += joint_rows<C>::room(line_);
    for (C** const each : {&k_, &shared_k_, &v_, &q_, &y_, &average_, &lse_}) {
      *each = buffer;
      buffer += line_;
    }
    weight_buffers_ = buffer;
    staged_rows_ = buffer + sets_ * weight_rows<C>::room(p, reach);
  }

  /// The next positions of batch element or packed sequence b, from `position` on, channels [c0, c1).
  void run(index_t b, index_t position, index_t c0, index_t c1) {
    b_ = b;
    first_row_ = p_.packed != nullptr ? p_.packed->queries.at(b) : 0;
    const index_t rows = p_.element_rows(b);
    const slot_arrays<C> slot(*p_.stream, p_.stream->slot(b));
    if (position == 0 && slot.folds()) clear_fold<C>(slot, c0, c1);
    constexpr index_t many = rows_together<C>, block = checks::slot_layout::block;
    for (index_t t = 0; t < rows;) {
      const index_t at = position + t, of_block = block - at % block;
      if (slot.kept() == 0) {
        const index_t n = min_of(min_of(rows - t, staged), fold_block - at % fold_block);
        folded_rows(slot, t, at, n, c0, c1);
        t += n;
      } else if (!slot.folds() && rows - t >= many && of_block >= many) {
        several_rows(slot, t, at, c0, c1);
        t += many;
      } else {
        take(slot, t, at, c0, c1);
        row(slot, t, at, c0, c1);
        const index_t left = at - slot.kept() + 1;
        if (slot.folds() && left > 0 && left % fold_block == 0) carry_blocks<C>(slot, c0, c1, left);
        ++t;
      }
    }
  }

 private:
  /// Sets of buffers for weights: of rows that are summed together, or of heads
  /// whose weights stay the same.
  static index_t weight_sets(const problem& p, index_t width) {
    if (p.stream->spec.op() == stream_operator::full) return p.Tq >= rows_together<C> ? rows_together<C> : 1;
    if (!same_for_all_rows(p)) return 1;
    const index_t heads = min_of(p.bias.heads, width / max_of(index_t{1}, p.d / p.bias.heads) + 2);
    return heads <= most_heads ? heads : 1;
  }
  /// A filter's taps, and a band of one row, are every row's.
  static bool same_for_all_rows(const problem& p) {
    return p.bias.kind == bias_kind::filter || (p.bias.kind == bias_kind::banded && p.bias.w.sr == 0);
  }

  weight_rows<C> weights(index_t set) const {
    return weight_rows<C>(p_, weight_buffers_ + set * weight_rows<C>::room(p_, reach_), reach_);
  }

  /// Its key and value.
  AFT_INLINE void take(const slot_arrays<C>& slot, index_t t, index_t position, index_t c0, index_t c1) {
    enter(slot, position, c0, c1, keys(t, c0, c1 - c0, k_), piece(p_.v, t, c0, c1 - c0, v_));
  }

  /// Where results of channels [c0, c1) of row t go at first.
  AFT_INLINE row_results<C> results(index_t t, index_t c0, index_t c1) {
    row_results<C> out;
    out.gate_fn = p_.gate_fn;
    if (p_.gate_fn != gate::none) out.q = piece(p_.q, t, c0, c1 - c0, q_);
    out.y = destination(p_.y, t, c0, c1 - c0, y_);
    if (p_.average.set) out.average = destination(p_.average, t, c0, c1 - c0, average_);
    if (p_.lse.set) out.lse = lse_;
    return out;
  }
  AFT_INLINE void write_results(index_t t, index_t c0, index_t c1, const row_results<C>& from) const {
    write(p_.y, t, c0, c1 - c0, from.y);
    if (p_.average.set) write(p_.average, t, c0, c1 - c0, from.average);
    if (p_.lse.set) write_lse(t, c0, c1, from.lse);
  }

  AFT_COMPILE_ONCE void row(const slot_arrays<C>& slot, index_t t, index_t position, index_t c0, index_t c1) {
    const index_t kept = slot.kept(), dh = p_.d / p_.bias.heads, last = kept == 0 ? position : position + 1;
    const bool with_fold = slot.folds() && !p_.excluded && position >= kept;
    // From the second row on that sees a whole window and a fold, or none where
    // there is none.
    const bool stays = sets_ > 1 || (same_for_all_rows(p_) && p_.bias.heads == 1);
    const bool whole = stays && kept > 0 && position >= kept;
    const row_results<C> out = results(t, c0, c1);
    index_t set = 0;
    for (index_t c = c0; c < c1; ++set) {
      const index_t h = c / dh, end = min_of(c1, (h + 1) * dh);
      row_weights<C> w{last, last, with_fold, nullptr, nullptr, C(0), true, false};
      if (whole && ready_ > set) {
        w = ready_weights_[set];
        w.first = last - kept;
        w.last = last;
      } else if (kept > 0) {
        w = weights(whole ? set : 0).row(b_, h, position, max_of(index_t{0}, last - kept), last, with_fold);
        if (whole) {
          ready_weights_[set] = w;
          ready_ = set + 1;
        }
      }
      finish_head<C>(slot, c, end, c0, w, out);
      c = end;
    }
    write_results(t, c0, c1, out);
  }

  /// n rows that have no key in reach, within a block of the fold: channels one vector after the other, whose sums stay
  /// in registers. On 512 positions of 512 channels 43 to 63 ns a vector, position by position 66 to 102 (Ice Lake, one
  /// thread beside other work, 2026-11).
  AFT_COMPILE_ONCE void folded_rows(const slot_arrays<C>& slot, index_t t, index_t position, index_t n, index_t c0,
                                    index_t c1) {
    const C *k[staged], *v[staged];
    row_results<C> out[staged];
    C* buffer = staged_rows_;
    const auto line = [&] { return (buffer += line_) - line_; };
    for (index_t r = 0; r < n; ++r) {
      k[r] = keys(t + r, c0, c1 - c0, line());
      v[r] = piece(p_.v, t + r, c0, c1 - c0, line());
      out[r].gate_fn = p_.gate_fn;
      if (p_.gate_fn != gate::none) out[r].q = piece(p_.q, t + r, c0, c1 - c0, line());
      out[r].y = destination(p_.y, t + r, c0, c1 - c0, line());
      if (p_.average.set) out[r].average = destination(p_.average, t + r, c0, c1 - c0, line());
      if (p_.lse.set) out[r].lse = line();
    }
    for (index_t c = c0; c < c1; c += lanes<C>) folded_column(slot, n, c, c - c0, min_of(lanes<C>, c1 - c), k, v, out);
    for (index_t r = 0; r < n; ++r) write_results(t + r, c0, c1, out[r]);
    if ((position + n) % fold_block == 0) carry_blocks<C>(slot, c0, c1, position + n);
  }

  /// One vector of channels of them, `at` of the block's before it.
  AFT_INLINE void folded_column(const slot_arrays<C>& slot, index_t n, index_t c, index_t at, index_t count,
                                const C* const* k, const C* const* v, const row_results<C>* out) {
    const index_t step = slot.step();
    C* const sums = slot.fold(0) + c;
    fold_column<C> column(sums, step);
    const vec<C> zero(C(0));
    const row_weights<C> w{0, 0, !p_.excluded, nullptr, nullptr, C(0), true, false};
    for (index_t r = 0; r < n; ++r) {
      const vec<C> key = load(k[r] + at), value = load(v[r] + at);
      const auto near_key = (xsimd::abs)(key) <= vec<C>(near_numbers<C>::key);
      const split_exp<C> e = exp_split<C>(xsimd::select(near_key, key, zero));
      const auto ordinary = column.add(e.mantissa, e.exponent, key, value);
      // Written for every row: the exact path reads them there.
      column.write(sums, step, count);
      if (!xsimd::all(ordinary)) {
        fold_apart<C>(slot, c, count, ordinary, key, value);
        column = fold_column<C>(sums, step);
      }
      const joint_sum<C> sum = p_.excluded ? joint_sum<C>{zero, zero, zero}
                                           : joint_sum<C>{column.total_num(), column.total_den(), column.reference()};
      finish_row<C>(slot, c, count, w, sum, at, out[r]);
    }
  }

  /// Rows of full, all of one block of positions.
  AFT_COMPILE_ONCE void several_rows(const slot_arrays<C>& slot, index_t t, index_t position, index_t c0, index_t c1) {
    constexpr index_t many = rows_together<C>;
    for (index_t r = 0; r < many; ++r) take(slot, t + r, position + r, c0, c1);
    const index_t dh = p_.d / p_.bias.heads;
    for (index_t c = c0; c < c1;) {
      const index_t h = c / dh, end = min_of(c1, (h + 1) * dh);
      row_weights<C> w[many];
      bool plain = true;
      for (index_t r = 0; r < many; ++r) {
        w[r] = weights(r).row(b_, h, position + r, 0, position + r + 1, false);
        plain = plain && w[r].usable && !w[r].hides;
      }
      if (plain) sum_rows<C, many>(slot, c, end, position, w, together_);
      for (index_t r = 0; r < many; ++r) {
        const row_results<C> out = results(t + r, c, end);
        for (index_t at = 0; plain && at < end - c; at += lanes<C>) {
          finish_row<C>(slot, c + at, min_of(lanes<C>, end - c - at), w[r],
                        {load(together_.num + r * together_.width + at), load(together_.den + r * together_.width + at),
                         load(together_.top + at)},
                        at, out);
        }
        if (!plain) finish_head<C>(slot, c, end, c, w[r], out);
        write_results(t + r, c, end, out);
      }
      c = end;
    }
  }

  /// Position `position` comes, and with it the one that leaves the window goes
  /// into the fold.
  AFT_INLINE void enter(const slot_arrays<C>& slot, index_t position, index_t c0, index_t c1, const C* k, const C* v) {
    constexpr index_t L = lanes<C>;
    const index_t kept = slot.kept(), place = position % kept, left = position - kept;
    for (index_t c = c0; left >= 0 && c < c1; c += L) release_position<C>(slot, left, place, c, min_of(L, c1 - c));
    for (index_t c = c0; c < c1; c += L)
      keep_position<C>(slot, position, place, c, min_of(L, c1 - c), load(k + (c - c0)), load(v + (c - c0)));
  }

  /// Whether n numbers from some on are whole vectors of C in the caller's
  /// memory.
  bool in_place(const field& f, index_t n) const {
    return f.type == dtype_of<C> && f.sc == 1 && n % lanes<C> == 0 && p_.d / p_.bias.heads % lanes<C> == 0;
  }
  std::byte* place(const field& f, index_t t, index_t c) const {
    const index_t batch = p_.packed != nullptr ? 0 : b_ * f.sb;
    return f.data + (batch + (first_row_ + t) * f.sx[2] + c * f.sc) * size_of(f.type);
  }
  const C* piece(const field& f, index_t t, index_t c, index_t n, C* buffer) const {
    if (in_place(f, n)) return reinterpret_cast<const C*>(place(f, t, c));
    read_strided<C>(f.type, place(f, t, c), f.sc, n, buffer);
    return buffer;
  }
  C* destination(const field& f, index_t t, index_t c, index_t n, C* buffer) const {
    return in_place(f, n) ? reinterpret_cast<C*>(place(f, t, c)) : buffer;
  }
  /// A key for each value channel.
  const C* keys(index_t t, index_t c0, index_t n, C* buffer) const {
    const index_t group = p_.d / p_.hk;
    if (group == 1) return piece(p_.k, t, c0, n, buffer);
    const index_t first = c0 / group, last = (c0 + n - 1) / group + 1;
    const field& f = p_.k;
    read_strided<C>(f.type, place(f, t, first), f.sc, last - first, shared_k_);
    for (index_t i = 0; i < n; ++i) buffer[i] = shared_k_[(c0 + i) / group - first];
    return buffer;
  }
  void write(const field& f, index_t t, index_t c, index_t n, const C* from) const {
    if (!in_place(f, n)) write_strided<C>(f.type, place(f, t, c), f.sc, n, from);
  }
  /// Of value channels that share a key the first one's.
  void write_lse(index_t t, index_t c0, index_t c1, const C* from) const {
    const index_t group = p_.d / p_.hk, size = size_of(p_.lse.type);
    if (group == 1) return write_strided<C>(p_.lse.type, place(p_.lse, t, c0), p_.lse.sc, c1 - c0, from);
    for (index_t c = round_up(c0, group); c < c1; c += group)
      std::memcpy(place(p_.lse, t, c / group), from + (c - c0), static_cast<std::size_t>(size));
  }

  const problem& p_;
  index_t reach_, sets_, line_ = 0;
  index_t b_ = 0, first_row_ = 0;
  joint_rows<C> together_;
  C *weight_buffers_ = nullptr, *staged_rows_ = nullptr;
  /// Of the heads of the block, in order, those that are known.
  row_weights<C> ready_weights_[most_heads];
  index_t ready_ = 0;
  C *k_ = nullptr, *shared_k_ = nullptr, *v_ = nullptr, *q_ = nullptr, *y_ = nullptr, *average_ = nullptr,
    *lse_ = nullptr;
};

/// Multiply-adds, about, as backend.hpp counts them.
inline double stream_work(const problem& p, index_t reach) {
  return static_cast<double>(p.B) * static_cast<double>(p.d) * static_cast<double>(p.Tq) *
         (3 * static_cast<double>(reach) + 64);
}

/// All four operators: p.stream is given. Slots are written by the threads that
/// own their channels; headers last.
template <class C>
AFT_COMPILE_ONCE inline void stream_forward(const problem& p, const cpu& given) {
  const stream_ref& s = *p.stream;
  const auto position_of = [&](index_t b) {
    return checks::slot_header::read(s.data + s.slot(b) * s.spec.bytes()).position;
  };
  const index_t all = p.elements();
  index_t furthest = 0, elements = 0;
  for (index_t b = 0; b < all; ++b) {
    if (s.slot(b) < 0) continue;
    ++elements;
    furthest = max_of(furthest, position_of(b) + p.element_rows(b));
  }
  const index_t reach = min_of(s.spec.layout().kept, furthest);
  const cpu exec = limit_threads(given, stream_work(p, reach));
  const channel_blocks<C> blocks(p, elements, exec.threads);
  scratch memory(exec);
  const per_thread<C> buffers = memory.take_each<C>(stream_worker<C>::room(p, blocks.width, reach), exec.threads);
  parallel_for(all * blocks.count, exec.threads, item_order::runs, [&](index_t item, int thread) {
    const index_t b = item / blocks.count, c0 = item % blocks.count * blocks.width;
    if (s.slot(b) < 0) return;
    stream_worker<C> worker(p, buffers.of(thread), blocks.width, reach);
    worker.run(b, position_of(b), c0, min_of(p.d, c0 + blocks.width));
  });
  const std::uint64_t spec = checks::digest_of(s.spec);
  for (index_t b = 0; b < all; ++b) {
    if (s.slot(b) < 0) continue;
    if (p.packed == nullptr)
      for_padding(p, b, [&](index_t t0, index_t t1) {
        fill_rows<C>(p.y, p.grid, b, t0, t1, p.d, C(0));
        if (p.average.set) fill_rows<C>(p.average, p.grid, b, t0, t1, p.d, C(0));
        if (p.lse.set) fill_rows<C>(p.lse, p.grid, b, t0, t1, p.hk, -std::numeric_limits<C>::infinity());
      });
    if (const index_t rows = p.element_rows(b); rows > 0)
      checks::slot_header::write(s.data + s.slot(b) * s.spec.bytes(), spec, position_of(b) + rows);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
