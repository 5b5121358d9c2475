// SPDX-License-Identifier: Apache-2.0
/// @file scan/panel.hpp  Rows of a segment as contiguous vectors: in place where storage allows, else staged as C.
#pragma once

#include <algorithm>
#include <limits>

#include "../tensor/stage.hpp"
#include "cache_policy.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Where the field has rows that were read or staged from it, and the steps between its rows and columns, in bytes.
struct stored_rows {
  const std::byte* first = nullptr;  ///< null where the next panel's are not asked for
  index_t row = 0, column = 0;
};

/// Rows of a segment, of the arithmetic's type or as they are stored. Stride 0 repeats one row.
template <class C>
struct panel {
  C* data = nullptr;
  index_t stride = 0;
  stored_rows stored{};
  C* row(index_t r) const { return data + r * stride; }
  /// The rows from r on.
  panel from(index_t r) const {
    panel rest = *this;
    rest.data += r * stride;
    if (stored.first != nullptr) rest.stored.first += r * stored.row;
    return rest;
  }
};

/// The column of a segment from which on columns of the next panel are asked for; 0 where these are asked for from the
/// start. Two panels of what lies in a cache do not fit the first-level one, so there the distance is short.
template <class C>
inline index_t turn_of(index_t width, bool uncached) {
  return uncached || width <= scan_tuning<C>::reach ? 0 : width - scan_tuning<C>::reach;
}

/// A place that moves through a panel: down the rows of a column, or along a row. One variable each: compilers make one
/// for every row, which are more than there are registers (`simple` in the caches: 1.08 times as long).
class panel_walk {
 public:
  /// `step` and `turn` in bytes: what next() adds, and what next_column() adds besides.
  panel_walk(const void* first, index_t ahead, index_t step, index_t turn)
      : at_(reinterpret_cast<std::uintptr_t>(first) + static_cast<std::uintptr_t>(ahead)), step_(step), turn_(turn) {}
  [[gnu::always_inline]] void next() { at_ += static_cast<std::uintptr_t>(step_); }
  [[gnu::always_inline]] void next_column() {
    at_ += static_cast<std::uintptr_t>(turn_);
    keep_single(at_);
  }

 protected:
  std::uintptr_t at_;
  index_t step_, turn_;
};

/// Rows of a panel that are read or written, column by column.
template <class C, class T = C>
class row_walk : public panel_walk {
 public:
  row_walk(const panel<T>& rows, index_t count, index_t i)
      : panel_walk(rows.data, i * size, rows.stride * size, lanes<C> * size - count * rows.stride * size) {}
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  [[gnu::always_inline]] T* here() const { return reinterpret_cast<T*>(at_); }

 private:
  static constexpr index_t size = static_cast<index_t>(sizeof(T));
};

/// Lines that are asked for.
class line_walk : public panel_walk {
 public:
  using panel_walk::panel_walk;
  // NOLINTBEGIN(performance-no-int-to-ptr)
  [[gnu::always_inline]] void prefetch_into() {
    AFT_PREFETCH(reinterpret_cast<const void*>(at_));
    next();
  }
  [[gnu::always_inline]] void prefetch_writes() {
    AFT_PREFETCH(reinterpret_cast<const void*>(at_), 1);
    next();
  }
  // NOLINTEND(performance-no-int-to-ptr)
};

/// The lines that are asked for beside row r and column i of a panel: those of the next one, or the one before it for
/// `step` -1. Rows of 16-bit numbers are asked for while those staged before are worked on.
template <class C>
class prefetch_lines {
 public:
  /// The same column of the next panel, where panels have so many rows.
  template <class T>
  prefetch_lines(const panel<T>& rows, index_t step, index_t count = scan_tuning<C>::rows)
      : from_(rows.stored.first), row_(rows.stored.row), column_(rows.stored.column), count_(count) {
    ahead_ = step * count * row_;
    if (from_ == nullptr) from_ = reinterpret_cast<const std::byte*>(rows.data);
  }
  /// All of the next panel, of memory (`far`) in the order in which it lies there if its rows follow one another: asked
  /// for row by row it takes 1.4 times as long.
  template <class T>
  static prefetch_lines whole(const panel<T>& rows, index_t step, index_t width, bool uncached,
                              index_t count = scan_tuning<C>::rows) {
    prefetch_lines lines(rows, step, count);
    if (uncached) lines.in_order(width);
    return lines;
  }
  /// For the columns before or `beyond` the turn, see turn_of; without one the whole next panel.
  template <class T>
  static prefetch_lines with_turn(const panel<T>& rows, index_t width, bool uncached, bool beyond,
                                  index_t count = scan_tuning<C>::rows) {
    const index_t turn = turn_of<C>(width, uncached);
    if (turn == 0) return whole(rows, 1, width, uncached, count);
    prefetch_lines lines(rows, 1, count);
    lines.ahead_ = beyond ? lines.ahead_ - turn * lines.column_ : (width - turn) * lines.column_;
    return lines;
  }
  [[gnu::always_inline]] void prefetch_into(index_t r, index_t i) const {
    prefetch(from_, ahead_ + r * row_ + i * column_);
  }
  /// Of memory (`far`) that will not be read again.
  [[gnu::always_inline]] void prefetch_last(index_t r, index_t i, bool uncached) const {
    if (uncached) {
      prefetch_once(from_, ahead_ + r * row_ + i * column_);
    } else {
      prefetch_into(r, i);
    }
  }
  /// The lines beside row r, vector by vector from column i on.
  line_walk along(index_t r, index_t i) const {
    return {from_, ahead_ + r * row_ + i * column_, lanes<C> * column_, 0};
  }
  /// Those beside all rows of a panel, vector by vector from column i on.
  line_walk down(index_t i) const { return {from_, ahead_ + i * column_, row_, lanes<C> * column_ - count_ * row_}; }
  [[gnu::always_inline]] void prefetch_second_level(index_t r, index_t i) const {
    prefetch_second(from_, ahead_ + r * row_ + i * column_);
  }
  [[gnu::always_inline]] void prefetch_writes(index_t r, index_t i) const {
    prefetch_to_write(from_, ahead_ + r * row_ + i * column_);
  }

 private:
  void in_order(index_t width) {
    if (row_ != width * column_) return;
    row_ = lanes<C> * column_;
    column_ *= count_;
  }

  const std::byte* from_;
  index_t row_, column_, ahead_, count_;
};

/// True where rows may be written by streaming stores: only whole lines are, see store_streaming. With AVX2 kernels
/// that go through several rows side by side write half a line of each in turn, which is joined with what memory
/// holds: 1.6 to 2.1 times the call's time (Zen 3 and Emerald Rapids, 2026-11; on Zen 5 they met the same ratios to a
/// stream as with AVX-512). A kernel that goes `row_by_row` writes both halves: `simple` on 268 MB takes 0.96 of its
/// time (Zen 3).
template <class C>
inline bool on_lines(const panel<C>& rows, bool row_by_row = false) {
  const auto line = static_cast<std::uintptr_t>(64);
  return (sizeof(vec<C>) == line || (row_by_row && sizeof(vec<C>) * 2 == line)) &&
         reinterpret_cast<std::uintptr_t>(rows.data) % line == 0 &&
         static_cast<std::uintptr_t>(rows.stride) * sizeof(C) % line == 0;
}

/// A column of one of several panels: the first row of that panel, and the column.
struct panel_place {
  index_t r = 0, i = 0;

  /// The place after columns up to `end`, in panels of so many rows.
  panel_place after(index_t end, index_t width, index_t rows) const {
    return end < width ? panel_place{r, end} : panel_place{r + rows, 0};
  }
};

/// Rows [t0, t1): open(t, n) opens n of them from t on, all at once where they are used `in_place`, else a panel of
/// `rows`; f(opened, n) works on them, and close(t, n, opened) ends it. Opening every panel of what lies in place took
/// 1.04 times as long (simple backward, 470 MB, Zen 5, 2026-11).
template <class Open, class F, class Close>
inline void for_panels(index_t t0, index_t t1, index_t rows, bool in_place, const Open& open, const F& f,
                       const Close& close) {
  const index_t step = in_place ? t1 - t0 : rows;
  for (index_t t = t0; t < t1; t += step) {
    const index_t n = min_of(step, t1 - t);
    const auto opened = open(t, n);
    f(opened, n);
    close(t, n, opened);
  }
}

/// A field seen as columns (b, c) by rows t. `group` value channels share one of its channels.
template <class C>
class columns {
 public:
  columns(const field& f, index_t d, index_t group) : f_(f), d_(d), group_(group) {}

  bool set() const { return f_.set; }

  /// True where rows can be used as they lie.
  bool direct(const segment& x) const { return lies_as<C>(x); }
  /// True where rows are whole vectors of T.
  template <class T>
  bool lies_as(const segment& x) const {
    return f_.type == dtype_of<T> && f_.sc == 1 && group_ == 1 && x.count == x.width && x.alone;
  }

  /// Rows from t0 on, where they lie.
  template <class T = C>
  panel<T> in_place(const segment& x, index_t t0) const {
    return {reinterpret_cast<T*>(address(x.b, t0, x.c)), f_.sx[2], stored(x, t0)};
  }

  /// Rows [t0, t0 + n). `buffer` takes them where they must be staged; unused lanes are 0.
  panel<C> read(const segment& x, index_t t0, index_t n, C* buffer) const {
    if (direct(x)) return in_place(x, t0);
    return copy(x, t0, n, buffer);
  }

  /// As read, but always into `buffer`, for rows that are to be changed.
  panel<C> copy(const segment& x, index_t t0, index_t n, C* buffer) const {
    stage(x, t0, n, buffer);
    return {buffer, x.width, stored(x, t0)};
  }

  /// Where rows [t0, t0 + n) can be written; close() takes them to the field.
  panel<C> open(const segment& x, index_t t0, C* buffer) const {
    if (direct(x)) return in_place(x, t0);
    return {buffer, x.width, stored(x, t0)};
  }

  /// What the field holds, to where open() said, for results that are added to it. Of channels that share an element
  /// the first has it, and the others 0, for write_group_sums.
  AFT_COMPILE_ONCE void load_open(const segment& x, index_t t0, index_t n, const panel<C>& to) const {
    if (direct(x)) return;
    stage(x, t0, n, to.data);
    if (group_ == 1) return;
    for_batches(x, d_, [&](index_t, index_t c, index_t at, index_t count) {
      for (index_t r = 0; r < n; ++r)
        for (index_t i = 0; i < count; ++i)
          if ((c + i) % group_ != 0) to.row(r)[at + i] = C(0);
    });
  }
  void close(const segment& x, index_t t0, index_t n, const panel<C>& from) const {
    if (!direct(x)) write(x, t0, n, from);
  }

  /// With a group, the first of the channels that share an element writes it.
  AFT_COMPILE_ONCE void write(const segment& x, index_t t0, index_t n, const panel<C>& from) const {
    for_batches(x, d_, [&](index_t b, index_t c, index_t at, index_t count) {
      if (group_ == 1) return write_strided_rows<C>(rows_of(b, t0, c), n, count, from.data + at, from.stride);
      const index_t kc = ceil_div(c, group_);
      const index_t skipped = kc * group_ - c;
      for (index_t r = 0; r < n; ++r) {
        const C* const in = from.row(r) + at;
        for (index_t i = skipped, j = kc; i < count; i += group_, ++j)
          write_strided<C>(f_.type, address(b, t0 + r, j), f_.sc, 1, in + i);
      }
    });
  }

  /// dk[kc] = sum of its channels' terms, each group's from left to right, vectors first.
  void write_group_sums(const segment& x, index_t t0, index_t n, const panel<C>& from) const {
    for_batches(x, d_, [&](index_t b, index_t c, index_t at, index_t count) {
      for (index_t r = 0; r < n; ++r) {
        for (index_t i = 0; i < count; i += group_) {
          const C sum = group_sum(from.row(r) + at + i);
          write_strided<C>(f_.type, address(b, t0 + r, (c + i) / group_), f_.sc, 1, &sum);
        }
      }
    });
  }

 private:
  std::byte* address(index_t b, index_t t, index_t c) const {
    return f_.data + (b * f_.sb + t * f_.sx[2] + c * f_.sc) * size_of(f_.type);
  }

  strided_rows rows_of(index_t b, index_t t, index_t c) const { return {f_.type, address(b, t, c), f_.sx[2], f_.sc}; }

  stored_rows stored(const segment& x, index_t t0) const {
    if (!f_.set || f_.sc != 1 || group_ != 1 || !x.alone) return {};
    return {address(x.b, t0, x.c), f_.sx[2] * size_of(f_.type), size_of(f_.type)};
  }

  void stage(const segment& x, index_t t0, index_t n, C* buffer) const {
    for_batches(x, d_, [&](index_t b, index_t c, index_t at, index_t count) {
      if (group_ == 1) return read_strided_rows<C>(rows_of(b, t0, c), n, count, buffer + at, x.width);
      for (index_t r = 0; r < n; ++r) {
        C* const out = buffer + r * x.width + at;
        for (index_t i = 0; i < count;) {
          const index_t kc = (c + i) / group_;
          C value = C(0);
          read_strided<C>(f_.type, address(b, t0 + r, kc), f_.sc, 1, &value);
          for (const index_t end = kc * group_ + group_ - c; i < end && i < count; ++i) out[i] = value;
        }
      }
    });
    for (index_t r = 0; r < n; ++r)
      for (index_t l = x.count; l < x.width; ++l) buffer[r * x.width + l] = C(0);
  }

  C group_sum(const C* terms) const {
    index_t i = 0;
    C sum = C(0);
    if (group_ >= lanes<C>) {
      vec<C> acc = load(terms);
      for (i = lanes<C>; i + lanes<C> <= group_; i += lanes<C>) acc += load(terms + i);
      C part[lanes<C>];
      store(part, acc);
      for (index_t l = 0; l < lanes<C>; ++l) sum += part[l];
    }
    for (; i < group_; ++i) sum += terms[i];
    return sum;
  }

  const field& f_;
  index_t d_;
  index_t group_;
};

/// k = -inf where key_lengths or the mask hides the key. From then on one test says that a key is hidden.
template <class C>
inline void hide_panel_keys(const problem& p, const segment& x, index_t s0, index_t n, const panel<C>& k) {
  for_batches(x, p.d, [&](index_t b, index_t, index_t at, index_t count) {
    const index_t limit = p.key_limit(b);
    for (index_t r = 0; r < n; ++r) {
      if (s0 + r < limit && !p.mask_hides(b, 0, s0 + r)) continue;
      C* const row = k.row(r) + at;
      for (index_t i = 0; i < count; ++i) row[i] = -std::numeric_limits<C>::infinity();
    }
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
