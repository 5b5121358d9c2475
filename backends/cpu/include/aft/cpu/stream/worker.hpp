// SPDX-License-Identifier: Apache-2.0
/// @file stream/worker.hpp  Rows of one call, through the buffers of one
/// thread: in bursts where enough of them come and their numbers are near, else
/// one by one.
#pragma once

#include "call_rows.hpp"
#include "folded_burst.hpp"
#include "kept_burst.hpp"
#include "simple_burst.hpp"

namespace aft::inline AFT_ISA::cpu_impl::stream {

template <class C>
class stream_worker {
 public:
  /// Heads whose weights are kept from row to row.
  static constexpr index_t most_heads = 16;

  static index_t room(const problem& p, index_t width, index_t reach) {
    const index_t line = line_of(width), rows = burst_rows(p, width, reach);
    index_t all = row_buffers<C>::lines * line + weight_sets(p, width) * weight_rows<C>::room(p, reach);
    if (rows == 0) return all;
    all += rows * (row_buffers<C>::lines * line + 2 * weight_rows<C>::row_room(reach));
    const checks::slot_layout layout = p.stream->spec.layout();
    if (layout.kept == 0) return all + simple_burst<C>::room(width, rows);
    return all + (layout.fold > 0 ? folded_burst<C>::room(reach, rows) : kept_burst<C>::room(width, rows));
  }
  stream_worker(const problem& p, C* buffer, index_t width, index_t reach)
      : p_(p),
        rows_(p),
        reach_(reach),
        line_(line_of(width)),
        sets_(weight_sets(p, width)),
        most_rows_(burst_rows(p, width, reach)),
        buffers_(buffer, line_) {
    weight_buffers_ = buffer + row_buffers<C>::lines * line_;
    burst_lines_ = weight_buffers_ + sets_ * weight_rows<C>::room(p, reach);
    burst_weights_ = burst_lines_ + most_rows_ * row_buffers<C>::lines * line_;
    burst_buffer_ = burst_weights_ + most_rows_ * 2 * weight_rows<C>::row_room(reach);
  }

  /// The next positions of batch element or packed sequence b, from `position` on, channels [c0, c1). `following`: the
  /// slot that the thread probably takes next, or -1.
  void run(index_t b, index_t position, index_t c0, index_t c1, index_t following) {
    b_ = b;
    following_ = following;
    rows_.select(b);
    first_head_ = c0 / (p_.d / p_.bias.heads);
    const index_t rows = p_.element_rows(b);
    const slot_arrays<C> slot(*p_.stream, p_.stream->slot(b));
    if (position == 0 && slot.folds()) clear_fold<C>(slot, c0, c1);
    for (index_t t = 0; t < rows;) {
      const index_t n = next_burst(slot, position + t, rows - t);
      if (n > 0) {
        take_burst(slot, t, position + t, n, c0, c1);
      } else {
        one_by_one(slot, t, position + t, 1, c0, c1);
      }
      t += max_of(n, index_t{1});
    }
  }

 private:
  static index_t line_of(index_t width) { return round_up(width, lanes<C>) + lanes<C>; }
  /// Sets of buffers for weights: of heads whose weights stay the same.
  static index_t weight_sets(const problem& p, index_t width) {
    if (!same_for_all_rows(p)) return 1;
    const index_t heads = min_of(p.bias.heads, width / max_of(index_t{1}, p.d / p.bias.heads) + 2);
    return heads <= most_heads ? heads : 1;
  }
  /// A filter's taps, and a band of one row, are every row's.
  static bool same_for_all_rows(const problem& p) {
    return p.bias.kind == bias_kind::filter || (p.bias.kind == bias_kind::banded && p.bias.w.sr == 0);
  }
  /// The most rows of a burst: what they read and write, and their weights, stay in the second-level cache.
  static index_t burst_rows(const problem& p, index_t width, index_t reach) {
    constexpr index_t many = rows_together<C>, numbers = index_t{1} << 21, pieces = burst<C>::most * 256;
    index_t rows = min_of(p.Tq, burst<C>::most);
    if (width > 0) rows = min_of(rows, max_of(many, pieces / width));
    rows = min_of(rows, max_of(many, numbers / (2 * weight_rows<C>::row_room(reach))));
    return rows / many * many;
  }
  /// Rows of the burst that begins at a position; 0: go one by one. They are of one block of kept positions, and their
  /// fold has no sums to move before its last.
  index_t next_burst(const slot_arrays<C>& slot, index_t position, index_t rows) const {
    constexpr index_t block = checks::slot_layout::block;
    index_t n = min_of(rows, most_rows_);
    if (slot.kept() > 0) n = min_of(n, block - position % block);
    if (slot.folds()) {
      const index_t left = position - slot.kept();
      // The first position to leave is no near one yet.
      n = min_of(n, left < 0 ? -left : left == 0 ? index_t{0} : fold_block(slot) - position % fold_block(slot));
    }
    return n / rows_together<C> * rows_together<C>;
  }

  /// n positions, channels [c0, c1). `given`: of one head, and their rows' weights are there already, since a function
  /// is asked for a pair once.
  void one_by_one(const slot_arrays<C>& slot, index_t t, index_t position, index_t n, index_t c0, index_t c1,
                  const row_weights<C>* given = nullptr) {
    for (index_t r = 0; r < n; ++r) {
      if (slot.kept() == 0) {
        folded_row(slot, t + r, c0, c1);
      } else {
        take(slot, t + r, position + r, c0, c1);
        row(slot, t + r, position + r, c0, c1, given == nullptr ? nullptr : given + r);
      }
      carry(slot, position + r + 1, c0, c1);
    }
  }
  /// After so many positions.
  AFT_INLINE void carry(const slot_arrays<C>& slot, index_t positions, index_t c0, index_t c1) const {
    const index_t left = positions - slot.kept();
    if (slot.folds() && left > 0 && positions % fold_block(slot) == 0) carry_blocks<C>(slot, c0, c1);
  }

  /// Its key and value. Position `position` comes, and with it the one that
  /// leaves the window goes into the fold.
  AFT_INLINE void take(const slot_arrays<C>& slot, index_t t, index_t position, index_t c0, index_t c1) {
    enter(slot, position, c0, c1, rows_.keys(t, c0, c1, buffers_), rows_.values(t, c0, c1, buffers_.v));
  }
  AFT_INLINE void enter(const slot_arrays<C>& slot, index_t position, index_t c0, index_t c1, const C* k,
                        const C* v) const {
    constexpr index_t L = lanes<C>;
    const index_t kept = slot.kept(), place = position % kept, left = position - kept;
    for (index_t c = c0; left >= 0 && c < c1; c += L) release_position<C>(slot, left, place, c, min_of(L, c1 - c));
    for (index_t c = c0; c < c1; c += L)
      keep_position<C>(slot, position, place, c, min_of(L, c1 - c), load(k + (c - c0)), load(v + (c - c0)));
  }

  AFT_COMPILE_ONCE void folded_row(const slot_arrays<C>& slot, index_t t, index_t c0, index_t c1) {
    const C *const k = rows_.keys(t, c0, c1, buffers_), *const v = rows_.values(t, c0, c1, buffers_.v);
    const row_results<C> out = rows_.results(t, c0, c1, buffers_);
    const row_weights<C> w{0, 0, !p_.excluded, nullptr, nullptr, C(0), true, false};
    const slot_arrays<C> next(*p_.stream, max_of(following_, index_t{0}));
    for (index_t at = 0; at < c1 - c0; at += lanes<C>) {
      // A fold's arrays are too short for the hardware to read ahead. Into the second-level cache, as more of them are
      // on their way then: 0.85 of the time with 4096 slots (d 512, Zen 4, 2026-11).
      for (index_t array = exponent; following_ >= 0 && array <= per_key_unit; ++array)
        prefetch_second(next.fold(array), c0 + at);
      finish_folded<C>(slot, c0 + at, min_of(lanes<C>, c1 - c0 - at), w, load(k + at), load(v + at), at, out);
    }
    rows_.write(t, c0, c1, out);
  }

  AFT_COMPILE_ONCE void row(const slot_arrays<C>& slot, index_t t, index_t position, index_t c0, index_t c1,
                            const row_weights<C>* given) {
    const index_t kept = slot.kept(), dh = p_.d / p_.bias.heads, last = position + 1;
    const bool with_fold = slot.folds() && !p_.excluded && position >= kept;
    // From the second row on that sees a whole window and a fold, or none where
    // there is none.
    const bool stays = sets_ > 1 || (same_for_all_rows(p_) && p_.bias.heads == 1);
    const bool whole = stays && position >= kept;
    const row_results<C> out = rows_.results(t, c0, c1, buffers_);
    for (index_t c = c0; c < c1;) {
      const index_t h = c / dh, end = min_of(c1, (h + 1) * dh), set = whole ? h - first_head_ : 0;
      row_weights<C> w;
      if (given != nullptr) {
        w = *given;
      } else if (whole && ready_[set]) {
        w = ready_weights_[set];
        w.first = last - kept;
        w.last = last;
      } else {
        weight_rows<C> weights(p_, weight_buffers_ + set * weight_rows<C>::room(p_, reach_), reach_);
        w = weights.row(b_, h, position, max_of(index_t{0}, last - kept), last, with_fold);
        if (whole) {
          ready_weights_[set] = w;
          ready_[set] = true;
        }
      }
      finish_head<C>(slot, c, end, c0, w, out);
      c = end;
    }
    rows_.write(t, c0, c1, out);
  }

  AFT_COMPILE_ONCE void take_burst(const slot_arrays<C>& slot, index_t t, index_t position, index_t n, index_t c0,
                                   index_t c1) {
    burst<C> rows;
    rows.position = position;
    rows.rows = n;
    for (index_t r = 0; r < n; ++r) {
      const row_buffers<C> buffers(burst_lines_ + r * row_buffers<C>::lines * line_, line_);
      rows.k[r] = rows_.keys(t + r, c0, c1, buffers);
      rows.v[r] = rows_.values(t + r, c0, c1, buffers.v);
      rows.out[r] = rows_.results(t + r, c0, c1, buffers);
      if (!slot.folds()) enter(slot, position + r, c0, c1, rows.k[r], rows.v[r]);
    }
    const index_t dh = p_.d / p_.bias.heads;
    for (index_t c = c0; c < c1;) {
      const index_t h = c / dh, end = min_of(c1, (h + 1) * dh);
      bool done = weigh(slot, h, rows);
      if (done && slot.kept() == 0) {
        run_simple(slot, t, c, end, c0, rows);
      } else if (done && slot.folds()) {
        run_folded(slot, t, c, end, c0, rows);
      } else {
        done = done && kept_burst<C>(slot, rows, burst_buffer_).run(c, end, c - c0);
        if (done) {
          write(t, c, end, c0, rows);
        } else {
          go_one_by_one(slot, t, c, end, rows);
        }
      }
      c = end;
    }
  }

  /// A burst's channels that did not go together.
  void go_one_by_one(const slot_arrays<C>& slot, index_t t, index_t c, index_t end, burst<C>& rows) {
    hide(rows, C(-1));
    one_by_one(slot, t, rows.position, rows.rows, c, end, rows.w);
    hide(rows, C(0));
  }
  /// What is hidden has no weight where e^k v is a number, and is left out where it may be none.
  static void hide(burst<C>& rows, C weight) {
    for (index_t r = 0; r < rows.rows; ++r) {
      const row_weights<C>& w = rows.w[r];
      for (index_t i = 0; w.hides && i < w.last - w.first; ++i)
        if (w.biases[i] == -std::numeric_limits<C>::infinity()) rows.scaled[r][i] = weight;
    }
  }

  /// Channels [c, end) of a slot that keeps no positions: together, or a vector at a time where not all are near.
  AFT_INLINE void run_simple(const slot_arrays<C>& slot, index_t t, index_t c, index_t end, index_t c0,
                             burst<C>& rows) {
    simple_burst<C> columns(slot, rows, end - c, burst_buffer_);
    const bool together = rows.w[0].with_fold && columns.run(c, c - c0, end - c);
    for (index_t n; c < end; c += n) {
      n = together ? end - c : min_of(lanes<C>, end - c);
      if (together || (rows.w[0].with_fold && columns.run(c, c - c0, n))) {
        carry(slot, rows.position + rows.rows, c, c + n);
        write(t, c, c + n, c0, rows);
      } else {
        go_one_by_one(slot, t, c, c + n, rows);
      }
    }
  }
  /// Channels [c, end) of one head of an operator with a fold.
  AFT_INLINE void run_folded(const slot_arrays<C>& slot, index_t t, index_t c, index_t end, index_t c0,
                             burst<C>& rows) {
    constexpr index_t L = lanes<C>, many = columns_together<C> * L;
    folded_burst<C> columns(slot, rows, burst_buffer_);
    for (index_t n; c < end; c += n) {
      n = many;
      bool done = c + many <= end && columns.template run<columns_together<C>>(c, c - c0, many);
      if (!done) {
        n = min_of(L, end - c);
        done = columns.template run<1>(c, c - c0, n);
      }
      if (done) {
        carry(slot, rows.position + rows.rows, c, c + n);
        write(t, c, c + n, c0, rows);
      } else {
        go_one_by_one(slot, t, c, c + n, rows);
      }
    }
  }
  AFT_INLINE void write(index_t t, index_t c, index_t end, index_t c0, const burst<C>& rows) const {
    for (index_t r = 0; r < rows.rows; ++r) rows_.write(t + r, c, end, rows.out[r].from(c - c0));
  }

  /// The rows' weights of a head; false: some can not be used.
  AFT_INLINE bool weigh(const slot_arrays<C>& slot, index_t h, burst<C>& rows) {
    const index_t kept = slot.kept(), apart = weight_rows<C>::row_room(reach_);
    const bool with_fold = slot.folds() && !p_.excluded && rows.position >= kept;
    const bool stays = same_for_all_rows(p_) && rows.position >= kept;
    weight_rows<C> weights(p_, weight_buffers_, reach_);
    bool usable = true;
    for (index_t r = 0; r < rows.rows; ++r) {
      const index_t position = rows.position + r, last = kept == 0 ? position : position + 1;
      const index_t first = max_of(index_t{0}, last - kept);
      row_weights<C>& w = rows.w[r];
      if (kept == 0) {
        w = {last, last, with_fold, nullptr, nullptr, C(0), true, false};
      } else if (stays && r > 0) {
        w = rows.w[0];
        w.first = first;
        w.last = last;
        rows.scaled[r] = rows.scaled[0];
      } else {
        C* const raw = burst_weights_ + 2 * r * apart;
        rows.scaled[r] = raw + apart;
        weights.write_to(raw, raw + apart);
        w = weights.row(b_, h, position, first, last, with_fold);
      }
      usable = usable && w.usable;
    }
    hide(rows, C(0));
    return usable;
  }

  const problem& p_;
  call_rows<C> rows_;
  index_t reach_, line_, sets_, most_rows_;
  index_t b_ = 0, first_head_ = 0, following_ = -1;
  row_buffers<C> buffers_;
  C *weight_buffers_ = nullptr, *burst_lines_ = nullptr, *burst_weights_ = nullptr, *burst_buffer_ = nullptr;
  /// Of the heads of the block those that are known.
  row_weights<C> ready_weights_[most_heads];
  bool ready_[most_heads] = {};
};

}  // namespace aft::inline AFT_ISA::cpu_impl::stream
