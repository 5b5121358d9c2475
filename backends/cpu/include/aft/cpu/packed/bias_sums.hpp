// SPDX-License-Identifier: Apache-2.0
/// @file packed/bias_sums.hpp  The gradient of a bias that all sequences of a packed call share: a sum over them.
///
/// Each sequence writes its gradient beside the others' and adds it to the sum of its part. Which sequences are a part,
/// and in which order they and the parts are added, the lengths alone say: the bits do not depend on threads.
#pragma once

#include <algorithm>
#include <array>

#include <aft/core/problem/bias_tensors.hpp>

#include "../simd/vec.hpp"
#include "../tensor/strided.hpp"
#include "schedule.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// 0 in what a bias has beyond a sequence of so many queries and keys, of batch element b. -1 queries: of no sequence,
/// so that a filter's taps, which belong to any length, are 0 too.
template <class C>
AFT_COMPILE_ONCE inline void clear_beyond(const bias_tensors& tensors, index_t b, index_t queries, index_t keys) {
  for (index_t i = 0; i < tensors.count; ++i) {
    bias_tensor t = tensors[i];
    t.to.data += b * t.to.sb * size_of(t.to.type);
    const index_t rows = queries < 0 ? 0 : t.rows_of(queries, keys), columns = t.columns_of(keys);
    for (index_t h = 0; h < t.heads; ++h) {
      for (index_t r = 0; r < t.rows; ++r) {
        const index_t from = r < rows ? columns : 0;
        if (from < t.columns) zero_strided<C>(t.to.type, t.at(h, r, from), t.to.sc, t.columns - from, false);
      }
    }
  }
}

template <class C>
class bias_sums {
 public:
  [[gnu::cold, gnu::noinline]] bias_sums(const backward_problem& p, const sequence_order& order)
      : tensors_(p), order_(&order), queries_(p.packed->longest_queries), keys_(p.packed->longest_keys) {
    const index_t all = tensors_.elements(queries_, keys_);
    const index_t held = 2 * max_of(all, 1);
    rows_ = max_of(queries_, 1);
    if (held <= most) {
      parts_ = min_of(min_of(most / held, most_parts), order.count);
    } else if (p.dbias.kind == bias_kind::dense || p.dbias.kind == bias_kind::banded) {
      // Rows of w have nothing in common: a few at a time, whatever the length.
      const index_t row = all / rows_;
      rows_ = max_of(most / (2 * row), 1);
      if (rows_ > block_rows) rows_ -= rows_ % block_rows;
    }
    for (index_t i = 0; i < order.count; ++i) {
      extent& e = extents_[static_cast<std::size_t>(i % parts_)];
      e.queries = max_of(e.queries, order.at(i).queries);
      e.keys = max_of(e.keys, order.at(i).keys);
    }
  }

  index_t parts() const { return parts_; }
  index_t part_of(index_t i) const { return i % parts_; }
  /// Rows that a pass sums; all of them, or those of a block.
  index_t rows() const { return rows_; }
  bool blocked() const { return rows_ < queries_; }

  [[gnu::cold, gnu::noinline]] void lay_out(const sequence_schedule& schedule, scratch& memory) {
    of_part_ = tensors_.elements(rows_, keys_);
    of_slot_ = 0;
    index_t shared = 0;
    for (index_t i = 0; i < order_->count; ++i) {
      const index_t own = tensors_.elements(min_of(order_->at(i).queries, rows_), order_->at(i).keys);
      index_t& most_of = i < schedule.shared() ? shared : of_slot_;
      most_of = max_of(most_of, own);
    }
    const index_t own_count = min_of(schedule.threads(), parts_);
    sums_ = memory.take<C>(parts_ * of_part_);
    own_ = memory.take<C>(max_of(shared, own_count * of_slot_));
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(2 * parts_ * tensors_.elements(rows_, keys_)) * sizeof(C);
  }

  /// Sums of rows from r0 on.
  [[gnu::cold]] void begin(index_t r0, int threads) {
    first_ = r0;
    parallel_for(parts_, threads, [&](index_t part, int) {
      const extent e = extent_of(part);
      std::fill_n(sums_ + part * of_part_, tensors_.elements(e.queries, e.keys), C(0));
    });
  }

  /// Lets a sequence write its gradient into what the slot has for it.
  void redirect(backward_problem& one, int slot) const {
    store_row_major(one.dbias, tensors_, one.Tq, one.Tk, own_ + slot * of_slot_);
  }

  /// What was written there, to the sum of the part.
  AFT_COMPILE_ONCE void add(const backward_problem& one, index_t part, int slot, const cpu& exec) const {
    const extent e = extent_of(part);
    const C* from = own_ + slot * of_slot_;
    C* to = sums_ + part * of_part_;
    for (index_t i = 0; i < tensors_.count; ++i) {
      const bias_tensor& t = tensors_[i];
      const index_t rows = t.rows_of(one.Tq, one.Tk), columns = t.columns_of(one.Tk);
      const index_t part_rows = t.rows_of(e.queries, e.keys), part_columns = t.columns_of(e.keys);
      const cpu own = limit_threads(exec, static_cast<double>(t.heads * rows * columns));
      parallel_for(t.heads * rows, thread_count(own), item_order::runs, [&](index_t row, int) {
        add_row(from + row * columns, columns, to + (row / rows * part_rows + row % rows) * part_columns);
      });
      from += t.elements(one.Tq, one.Tk);
      to += t.elements(e.queries, e.keys);
    }
  }

  /// The sums of all parts, and 0 beyond the longest sequence. `last`: no other rows follow.
  [[gnu::cold]] AFT_COMPILE_ONCE void finish(bool last, int threads) const {
    for (index_t i = 0; i < tensors_.count; ++i) {
      const bias_tensor& t = tensors_[i];
      const index_t first = t.by_queries ? first_ : 0;
      const index_t rows = (t.by_queries && !last ? min_of(first + rows_, t.rows) : t.rows) - first;
      parallel_for(t.heads * rows, threads, item_order::runs, [&](index_t row, int) {
        for (index_t c = 0; c < t.columns; c += width) write_sum(i, row / rows, row % rows, c);
      });
    }
  }

 private:
  struct extent {
    index_t queries = 0, keys = 0;
  };
  // Of a call's 64 MiB: half of it for sums, half for what is to be added.
  static constexpr index_t most = (index_t{24} << 20) / static_cast<index_t>(sizeof(C));
  // As many threads as can have short sequences at a time. Each part costs a pass over its sums.
  static constexpr index_t most_parts = 16;
  static constexpr index_t block_rows = 16;
  static constexpr index_t width = 256;

  /// What the sequences of a part reach of the rows that are summed.
  extent extent_of(index_t part) const {
    extent e = extents_[static_cast<std::size_t>(part)];
    e.queries = min_of(max_of(e.queries - first_, 0), rows_);
    return e;
  }

  static void add_row(const C* from, index_t n, C* to) {
    index_t i = 0;
    for (; i + lanes<C> <= n; i += lanes<C>) store(to + i, load(to + i) + load(from + i));
    for (; i < n; ++i) to[i] += from[i];
  }

  void write_sum(index_t tensor, index_t h, index_t row, index_t c) const {
    const bias_tensor& t = tensors_[tensor];
    const index_t n = min_of(t.columns - c, width);
    C line[width];
    std::fill_n(line, n, C(0));
    for (index_t part = 0; part < parts_; ++part) {
      const extent e = extent_of(part);
      const index_t rows = t.rows_of(e.queries, e.keys), columns = t.columns_of(e.keys);
      if (row >= rows || c >= columns) continue;
      const C* from = sums_ + part * of_part_;
      for (index_t i = 0; i < tensor; ++i) from += tensors_[i].elements(e.queries, e.keys);
      add_row(from + (h * rows + row) * columns + c, min_of(columns - c, n), line);
    }
    write_strided<C>(t.to.type, t.at(h, row + (t.by_queries ? first_ : 0), c), t.to.sc, n, line);
  }

  bias_tensors tensors_;
  const sequence_order* order_;
  index_t queries_, keys_;
  index_t rows_ = 1, parts_ = 1, first_ = 0;
  std::array<extent, most_parts> extents_{};
  index_t of_part_ = 0, of_slot_ = 0;
  C* sums_ = nullptr;
  C* own_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
