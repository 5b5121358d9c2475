// SPDX-License-Identifier: Apache-2.0
/// @file scan/plan.hpp  How the (batch, channel) columns of a problem are cut into column blocks.
#pragma once

#include <algorithm>

#include <aft/core/problem/problem.hpp>

#include "narrow_rows.hpp"
#include "tuning.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Columns [first, first + count) of the flattened (b, c), column n being batch n / d, channel n % d. Their sums lie at
/// lanes [lane, lane + width) of a column block's arrays, width being a whole number of vectors.
struct segment {
  index_t first = 0;
  index_t count = 0;
  index_t width = 0;
  index_t lane = 0;
  index_t b = 0, c = 0;  ///< batch and channel of the first; divisions in every panel were a twentieth of the time
  bool alone = true;     ///< all are of one batch element
};

/// A column block: what one thread scans along the sequence. Either a range of channels of one batch element, or, where
/// rows are shorter than a vector, several whole batch elements.
struct column_block {
  index_t first = 0;
  index_t count = 0;
  index_t b = 0, c = 0;  ///< batch and channel of the first
};

/// Rows are read from memory in order and whole, or in pieces of kilobytes: walking down a column of one vector reaches
/// half the bandwidth.
template <class C>
class scan_plan {
 public:
  scan_plan(const problem& p, int threads, const narrow_entries* narrow = nullptr) : narrow_(narrow), B_(p.B), d_(p.d) {
    using tune = scan_tuning<C>;
    const index_t group = p.d / p.hk;
    shared_ = group > 1;
    if (p.d < lanes<C> && p.B > 1) {
      const index_t several = (4 * lanes<C> + p.d - 1) / p.d;
      const index_t batches = min_of(several, p.B);
      columns_ = batches * p.d;
      count_ = ceil_div(p.B, batches);
      packed_ = true;
    } else {
      // Channels that share a key stay together, for dk sums over them.
      // Others are cut between cache lines, each of which one thread then writes.
      constexpr index_t line = 64 / static_cast<index_t>(sizeof(C));
      const index_t unit = group == 1 ? max_of(lanes<C>, line) : group * (ceil_div(lanes<C>, group));
      pieces_ = ceil_div(p.d, tune::column_block);
      const bool alone = p.B >= threads && divides(p.B * pieces_, threads);
      by_chunk_ = !p.causal && !alone && levels(p.B, p.Tk, threads) && levels(p.B, p.Tq, threads);
      if (p.B * pieces_ < threads && !by_chunk_) {
        const index_t wanted = (threads + p.B - 1) / p.B;
        const index_t most = p.d / tune::narrowest;
        const index_t some = min_of(wanted, most);
        if (some > pieces_) pieces_ = some;
      }
      columns_ = round_up((p.d + pieces_ - 1) / pieces_, unit);
      if (columns_ > p.d) columns_ = p.d;
      pieces_ = ceil_div(p.d, columns_);
      count_ = p.B * pieces_;
      splits_rows_ = pieces_ > 1 && p.B < threads && whole(threads, p.causal);
    }
    width_ = round_up(columns_, lanes<C>);
  }

  index_t count() const { return count_; }
  /// The loops for rows of 16-bit numbers, or null.
  const narrow_entries* narrow() const { return narrow_; }
  static index_t chunks(index_t positions) { return ceil_div(positions, scan_tuning<C>::chunk); }
  /// True where a thread had better take a column block from its first key to its last row. What is causal would have
  /// to fold its keys twice otherwise; else it spares the threads two meetings, as long as none of them is left without
  /// work and each has rows of its own.
  bool whole(int threads, bool causal) const {
    if (causal || count_ < threads) return count_ >= threads;
    return !by_chunk_ && divides(count_, threads);
  }
  /// True where several threads write pieces of the same rows. What a processor writes to, it also fetches ahead, and
  /// so takes lines from the thread of the next piece: such outputs are written by streaming stores, however small they
  /// are. Causal calls on one batch element with two threads take 0.65 to 1.05 of the time where these share a
  /// third-level cache and 0.4 to 0.7 where they do not (Zen 5, 2026-11, 128 to 4096 positions, 512 channels).
  bool splits_rows() const { return splits_rows_; }

  struct part {
    index_t column_block = 0, chunk = 0;
  };
  /// Item n of those that are all chunks of all column blocks: whole rows of a batch element one after the other, so
  /// that threads whose items are runs do not write to the same rows.
  part part_of(index_t n, index_t chunks) const {
    const index_t b = n / (chunks * pieces_), left = n % (chunks * pieces_);
    return {b * pieces_ + left % pieces_, left / pieces_};
  }
  /// Lanes of the widest column block.
  index_t width() const { return width_; }

  column_block at(index_t i) const {
    if (packed_) {
      const index_t first = i * columns_;
      const index_t left = B_ * d_ - first;
      return {first, min_of(left, columns_), first / d_, first % d_};
    }
    const index_t b = i / pieces_;
    const index_t c = i % pieces_ * columns_;
    return {b * d_ + c, d_ - c < columns_ ? d_ - c : columns_, b, c};
  }

  /// Calls f for the whole vectors of a column block, which can then be read in place, and for the rest. Channels that
  /// share a key are not split apart.
  template <class F>
  void for_segments(const column_block& x, const F& f) const {
    const index_t whole = shared_ ? 0 : x.count / lanes<C> * lanes<C>;
    if (whole > 0) f(segment{x.first, whole, whole, 0, x.b, x.c, x.c + whole <= d_});
    const index_t rest = x.count - whole;
    if (rest == 0) return;
    index_t b = x.b;
    index_t c = x.c + whole;
    if (c >= d_) {
      b += c / d_;
      c %= d_;
    }
    f(segment{x.first + whole, rest, round_up(rest, lanes<C>), whole, b, c, c + rest <= d_});
  }

  /// A column block may hold several batch elements, whose keys end at different places.
  bool packed() const { return packed_; }
  static index_t first_batch(const column_block& x) { return x.b; }
  index_t last_batch(const column_block& x) const { return (x.first + x.count - 1) / d_; }

 private:
  /// Whether so many parts employ all threads.
  static bool divides(index_t parts, int threads) {
    return parts > 0 && (parts % threads == 0 || parts >= 4 * threads);
  }

  /// Whether threads that take whole chunks are done at about the same time: cutting rows takes 1.3 times as long.
  static bool levels(index_t batches, index_t positions, int threads) {
    const index_t rounds = ceil_div(batches * chunks(positions), threads);
    return rounds > 0 && rounds * scan_tuning<C>::chunk * threads <= batches * positions * 5 / 4;
  }

  const narrow_entries* narrow_;
  index_t B_;
  index_t d_;
  index_t columns_ = 0;
  index_t pieces_ = 1;
  index_t count_ = 0;
  index_t width_ = 0;
  bool packed_ = false;
  bool shared_ = false;
  /// Threads divide a batch element by its positions. By its channels, of which a row has a piece for each, two of them
  /// took 0.36 ms for one of 2048 x 512, and 0.13 so (Zen 5, 2026-11, no common third-level cache; 0.14 and 0.115 with
  /// one). On 256 to 16384 positions 0.47 to 0.85 of the time, backward 0.7 to 0.95.
  bool by_chunk_ = false;
  bool splits_rows_ = false;
};

/// Gives out arrays of `size` numbers one after the other from `at` on; returns where the last one ends.
template <class C>
inline C* cut_arrays(C* at, index_t size, std::initializer_list<C**> arrays) {
  for (C** const array : arrays) {
    *array = at;
    at += size;
  }
  return at;
}

/// Calls f(b, c, at, n): n consecutive channels of one batch element, `at` columns into the segment.
template <class F>
inline void for_batches(const segment& x, index_t d, const F& f) {
  for (index_t at = 0; at < x.count;) {
    const index_t b = (x.first + at) / d;
    const index_t c = (x.first + at) % d;
    const index_t n = d - c < x.count - at ? d - c : x.count - at;
    f(b, c, at, n);
    at += n;
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
