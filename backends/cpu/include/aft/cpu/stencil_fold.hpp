// SPDX-License-Identifier: Apache-2.0
/// @file stencil_fold.hpp  The sum over a whole grid of inputs: taps under the box, one outside weight elsewhere.
#pragma once

#include "function_ref.hpp"
#include "scratch.hpp"
#include "stencil_shape.hpp"
#include "stencil_tile.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

/// Sums of two-vector inputs P[s] over what lies outside the box of an output, put together from prefixes and
/// suffixes of rows, of rows of a plane, and of planes. Nothing is subtracted, so nothing cancels: the box may hold
/// all but 2^-60 of the mass.
template <class C>
class box_complement {
 public:
  static constexpr index_t pair = 2 * lanes<C>;

  static index_t scratch_size(const stencil_shape& s) {
    return pair * (s.width() * (2 + most_rows(s)) + s.grid[0] * (s.grid[1] + 1) * 2 + (s.grid[0] + 1) * 2);
  }
  box_complement(const stencil_shape& s, C* memory) : shape_(&s) {
    outside_ = memory;
    newer_ = outside_ + s.width() * pair;
    front_ = newer_ + s.width() * pair;
    rows_before_ = front_ + s.width() * most_rows(s) * pair;
    rows_after_ = rows_before_ + s.grid[0] * (s.grid[1] + 1) * pair;
    planes_before_ = rows_after_ + s.grid[0] * (s.grid[1] + 1) * pair;
    planes_after_ = planes_before_ + (s.grid[0] + 1) * pair;
  }

  /// Folds rows and planes of P; a single row needs neither.
  void prepare(const C* P) {
    const stencil_shape& s = *shape_;
    if (s.rows() == 1 || !s.complement()) return;
    const index_t heights = s.grid[1];
    put(planes_before_, 0, zero_pair());
    for (index_t y0 = 0; y0 < s.grid[0]; ++y0) {
      C* const before = rows_before_ + y0 * (heights + 1) * pair;
      C* const after = rows_after_ + y0 * (heights + 1) * pair;
      put(before, 0, zero_pair());
      for (index_t y1 = 0; y1 < heights; ++y1) {
        sums row = zero_pair();
        const C* const from = P + (y0 * heights + y1) * s.width() * pair;
        for (index_t x = 0; x < s.width(); ++x) row = row + get(from, x);
        put(after, y1, row);  // the row alone, until the suffixes are taken below
        put(before, y1 + 1, get(before, y1) + row);
      }
      put(after, heights, zero_pair());
      for (index_t y1 = heights; y1-- > 0;) put(after, y1, get(after, y1 + 1) + get(after, y1));
      put(planes_before_, y0 + 1, get(planes_before_, y0) + get(before, heights));
    }
    put(planes_after_, s.grid[0], zero_pair());
    for (index_t y0 = s.grid[0]; y0-- > 0;)
      put(planes_after_, y0, get(planes_after_, y0 + 1) + get(rows_before_ + y0 * (heights + 1) * pair, heights));
  }

  /// Sums for the outputs of row (y0, y1); read them with `at`. Rows of a plane come in order.
  void begin_row(const C* P, index_t y0, index_t y1) {
    const stencil_shape& s = *shape_;
    if (!s.complement()) return;
    if (s.rows() > 1) {
      const stencil_shape::span planes = s.reach(0, y0);
      const stencil_shape::span rows = s.reach(1, y1);
      sums elsewhere = get(planes_before_, planes.lo) + get(planes_after_, planes.hi);
      for (index_t i = planes.lo; i < planes.hi; ++i) {
        const index_t plane = i * (s.grid[1] + 1) * pair;
        elsewhere = elsewhere + (get(rows_before_ + plane, rows.lo) + get(rows_after_ + plane, rows.hi));
      }
      const window box = move_window(P, planes, rows, y1 == 0);
      put_outside([&](index_t x) { return get(box.older, x) + get(box.newer, x); }, elsewhere);
    } else {
      put_outside([&](index_t x) { return get(P, x); }, zero_pair());
    }
  }

  const C* at(index_t x) const { return outside_ + x * pair; }

 private:
  struct sums {
    vec<C> a, b;
    friend sums operator+(const sums& x, const sums& y) { return {x.a + y.a, x.b + y.b}; }
  };
  static sums zero_pair() { return {vec<C>(C(0)), vec<C>(C(0))}; }
  static sums get(const C* p, index_t i) { return {load(p + i * pair), load(p + i * pair + lanes<C>)}; }
  static void put(C* p, index_t i, const sums& x) {
    store(p + i * pair, x.a);
    store(p + i * pair + lanes<C>, x.b);
  }

  static void add(C* to, const C* x, const C* y, index_t n) {
    for (index_t i = 0; i < n; i += lanes<C>) store(to + i, load(x + i) + load(y + i));
  }
  static void clear(C* p, index_t n) {
    for (index_t i = 0; i < n; i += lanes<C>) store(p + i, vec<C>(C(0)));
  }
  static index_t most_rows(const stencil_shape& s) {
    const index_t rows = s.taps[1] < s.grid[1] ? s.taps[1] : s.grid[1];
    return rows > 1 ? rows : 1;
  }

  /// Columns summed over the box's rows: the sum of the two.
  struct window {
    const C* older;
    const C* newer;
  };

  /// The box moves down: suffixes of the rows at hand when the last ones were used up, and a sum of those that came
  /// since. Three additions a row instead of one for every row of the box.
  window move_window(const C* P, const stencil_shape::span& planes, const stencil_shape::span& rows, bool fresh) {
    const index_t line = shape_->width() * pair;
    const index_t plane = shape_->grid[1] * line;
    if (fresh) end_ = next_ = 0;
    if (planes.lo == planes.hi || rows.lo == rows.hi) {
      clear(front_, line);
      end_ = 0;
      return {front_, front_};
    }
    if (rows.lo >= end_) {
      begin_ = rows.lo;
      end_ = next_ = rows.hi;
      clear(newer_, line);
      for (index_t y = end_; y-- > begin_;) {
        C* const to = front_ + (y - begin_) * line;
        const C* const below = y + 1 < end_ ? to + line : newer_;
        add(to, below, P + planes.lo * plane + y * line, line);
        for (index_t i = planes.lo + 1; i < planes.hi; ++i) add(to, to, P + i * plane + y * line, line);
      }
    }
    for (; next_ < rows.hi; ++next_)
      for (index_t i = planes.lo; i < planes.hi; ++i) add(newer_, newer_, P + i * plane + next_ * line, line);
    return {front_ + (rows.lo - begin_) * line, newer_};
  }

  /// outside[x] = elsewhere + the columns before and after the box. Columns are joined in groups: the rounding is that
  /// of a group and of the number of groups, not of all columns. On 104 positions a plain sum was seen to be 9 units
  /// off.
  template <class Column>
  [[gnu::always_inline]] void put_outside(const Column& column, const sums& elsewhere) {
    // Copies of what the loops use: a vector that is stored might alias the members.
    const stencil_shape& s = *shape_;
    C* const outside = outside_;
    const index_t width = s.width();
    const index_t first = s.left[2] + 1;
    const index_t past = s.taps[2] - s.left[2];
    // The exact path adds up a causal row's keys one by one, and has to meet the same bits.
    const index_t joined = s.after ? 16 : width;
    // Outputs near the end see no column after their box, those before them one more each: with a loop for these
    // columns in the loop over outputs, its length was what a processor did not foresee.
    const index_t see_all = !s.after || past >= width ? 0 : width - past;
    for (index_t x = see_all; x < width; ++x) put(outside, x, elsewhere);
    sums joint = elsewhere;
    for (index_t x = see_all; x > 0;) {
      sums own = zero_pair();
      for (const index_t end = x > joined ? x - joined : 0; x > end;) {
        --x;
        own = own + column(x + past);
        put(outside, x, joint + own);
      }
      joint = joint + own;
    }
    joint = zero_pair();
    for (index_t x = first; s.before && x < width;) {
      sums own = zero_pair();
      for (const index_t end = width - x > joined ? x + joined : width; x < end; ++x) {
        own = own + column(x - first);
        put(outside, x, (joint + own) + get(outside, x));
      }
      joint = joint + own;
    }
  }

  const stencil_shape* shape_;
  index_t begin_ = 0, end_ = 0;  ///< rows whose suffixes front_ holds
  index_t next_ = 0;             ///< the first row that is in no sum yet
  C* outside_;
  C* newer_;  ///< rows from end_ on
  C* front_;
  C* rows_before_;
  C* rows_after_;
  C* planes_before_;
  C* planes_after_;
};

/// out[x - x0] = sum_j table[j] P[x + j - left] + outside * (sum of the rest), outputs [x0, x1) of row (y0, y1), for
/// which `rest` was begun.
template <class C>
inline void stencil_row(const stencil_shape& shape, const C* table, const C* outside, const C* P,
                        const box_complement<C>& rest, index_t y0, index_t y1, index_t x0, index_t x1, C* out) {
  constexpr index_t L = lanes<C>;
  const stencil_shape::span planes = shape.reach(0, y0);
  const stencil_shape::span rows = shape.reach(1, y1);
  stencil_run<C> run;
  run.weight_row = shape.taps[2] * L;
  run.weight_plane = shape.taps[1] * run.weight_row;
  run.weights =
      table + (planes.lo - y0 + shape.left[0]) * run.weight_plane + (rows.lo - y1 + shape.left[1]) * run.weight_row;
  run.in_row = shape.width() * 2 * L;
  run.in_plane = shape.grid[1] * run.in_row;
  run.in = P + planes.lo * run.in_plane + rows.lo * run.in_row;
  run.planes = planes.hi - planes.lo;
  run.rows = rows.hi - rows.lo;
  run.taps = shape.taps[2];
  run.width = shape.width();
  run.shift = -shape.left[2];
  run.rest = shape.complement() ? rest.at(0) : nullptr;
  run.outside = outside;
  stencil_outputs<C, 1>(run, x0, x1, out);
}

/// fold_grid for any `done`.
template <class C>
[[gnu::noinline]] void fold_rows(const stencil_shape& shape, const C* table, const C* outside, const C* P,
                                 box_complement<C>& rest, C* sums, index_t most,
                                 function_ref<void(index_t, index_t)> done) {
  rest.prepare(P);
  for (index_t row = 0; row < shape.rows(); ++row) {
    const index_t y0 = row / shape.grid[1];
    const index_t y1 = row % shape.grid[1];
    rest.begin_row(P, y0, y1);
    for (index_t x0 = 0; x0 < shape.width(); x0 += most) {
      const index_t x1 = x0 + most < shape.width() ? x0 + most : shape.width();
      stencil_row<C>(shape, table, outside, P, rest, y0, y1, x0, x1, sums);
      done(row * shape.width() + x0, row * shape.width() + x1);
    }
  }
}

/// stencil_row for the whole grid in order: calls done(t0, t1) when `sums` holds outputs [t0, t1), at most `most` of
/// one row of the grid.
template <class C, class Done>
inline void fold_grid(const stencil_shape& shape, const C* table, const C* outside, const C* P, box_complement<C>& rest,
                      C* sums, index_t most, const Done& done) {
  fold_rows<C>(shape, table, outside, P, rest, sums, most, function_ref<void(index_t, index_t)>(done));
}

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
