// SPDX-License-Identifier: Apache-2.0
/// @file stencil/complement.hpp  Sums over what lies outside the box of an output.
#pragma once

#include "../softmax/sums.hpp"
#include "shape.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// A sum of columns on its way. Columns are joined in groups and these in groups again: the rounding is that of a
/// group, of as many groups and of what is left, not of all columns. A plain sum was seen to be 9 units off on 104
/// positions, 100 on 3000, and one of groups 13 on 6000.
template <class C>
class row_sum {
 public:
  static constexpr int group = 4;  ///< columns of a group: the exponent of a power of two

  row_sum() = default;
  explicit row_sum(const vec_sum<C>& first) : past_(first), joint_(first) {}
  void add(const vec_sum<C>& x) { own_ = own_ + x; }
  void join() {
    groups_ = groups_ + own_;
    own_ = zero_sum<C>();
    joint_ = past_ + groups_;
    if (++count_ < index_t{1} << group) return;
    past_ = joint_;
    groups_ = zero_sum<C>();
    count_ = 0;
  }
  vec_sum<C> total() const { return joint_ + own_; }

 private:
  vec_sum<C> past_ = zero_sum<C>();    ///< groups of groups that are complete
  vec_sum<C> groups_ = zero_sum<C>();  ///< groups since then
  vec_sum<C> joint_ = zero_sum<C>();   ///< the sum of both
  vec_sum<C> own_ = zero_sum<C>();     ///< the group that is not complete
  index_t count_ = 0;
};

/// The columns of a row before and after the boxes of its outputs, for some outputs at a time; what is summed does not
/// depend on how outputs are cut. `column(x)` is the two vectors of an input.
template <class C>
class row_complement {
 public:
  static constexpr index_t pair = 2 * lanes<C>;

  explicit row_complement(const stencil_shape& s)
      : first_(s.left[2] + 1),
        past_(s.taps[2] - s.left[2]),
        see_before_(s.before ? first_ : s.width()),
        see_after_(!s.after || past_ >= s.width() ? 0 : s.width() - past_) {}

  /// Outputs [x0, x1), their boxes and both functions below look at columns [x0 - reach_before(), x1 + reach_after()).
  index_t reach_before() const { return first_; }
  index_t reach_after() const { return past_; }

  /// Outputs x1 - 1 down to x0: `sum` held what x1 sees after its box, and then holds what x0 does. What each sees is
  /// stored to out[x - x0], if `out` is not null.
  template <class Column>
  [[gnu::always_inline]] void after(const Column& column, index_t x0, index_t x1, row_sum<C>& sum, C* out) const {
    // Outputs near the end see no column after their box, those before them one more each: with a loop for these
    // columns in the loop over outputs, its length was what a processor did not foresee.
    const index_t see = see_after_ < x0 ? x0 : min_of(see_after_, x1);
    row_sum<C> s = sum;
    for (index_t x = see; x < x1 && out != nullptr; ++x) store_sum(out + (x - x0) * pair, s.total());
    for (index_t x = see; x > x0;) {
      const index_t group = see_after_ - group_end(see_after_ - x);
      for (const index_t end = max_of(group, x0); x > end;) {
        --x;
        s.add(column(x + past_));
        if (out != nullptr) store_sum(out + (x - x0) * pair, s.total());
      }
      if (x == group) s.join();
    }
    sum = s;
  }

  /// Outputs x0 to x1 - 1: `sum` held what x0 - 1 sees before its box, and then holds what x1 - 1 does. What each sees
  /// is added to out[x - x0].
  template <class Column>
  [[gnu::always_inline]] void before(const Column& column, index_t x0, index_t x1, row_sum<C>& sum, C* out) const {
    row_sum<C> s = sum;
    for (index_t x = max_of(x0, see_before_); x < x1;) {
      const index_t group = first_ + group_end(x - first_);
      for (const index_t end = min_of(group, x1); x < end; ++x) {
        s.add(column(x - first_));
        C* const to = out + (x - x0) * pair;
        store_sum(to, s.total() + load_sum(to));
      }
      if (x == group) s.join();
    }
    sum = s;
  }

 private:
  /// Where the group ends that column i is in.
  static index_t group_end(index_t i) { return ((i >> row_sum<C>::group) + 1) << row_sum<C>::group; }

  index_t first_;       ///< output x sees the columns up to x - first before its box,
  index_t past_;        ///< and those from x + past on after it
  index_t see_before_;  ///< outputs from here on see a column before their boxes,
  index_t see_after_;   ///< those before here one after them
};

/// Sums of two-vector inputs P[s] over what lies outside the box of an output, put together from prefixes and
/// reverse sums of rows, of rows of a plane, and of planes. Nothing is subtracted, so nothing cancels: the box may hold
/// all but 2^-60 of the mass.
template <class C>
class box_complement {
 public:
  static constexpr index_t pair = row_complement<C>::pair;

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

  /// What all outputs see besides, at first nothing.
  void begin_with(const vec_sum<C>& more) { more_ = more; }

  /// Folds rows and planes of P; a single row needs neither.
  void prepare(const C* P) {
    const stencil_shape& s = *shape_;
    if (s.rows() == 1 || !s.complement()) return;
    const index_t heights = s.grid[1];
    put(planes_before_, 0, zero());
    for (index_t y0 = 0; y0 < s.grid[0]; ++y0) {
      C* const before = rows_before_ + y0 * (heights + 1) * pair;
      C* const after = rows_after_ + y0 * (heights + 1) * pair;
      put(before, 0, zero());
      for (index_t y1 = 0; y1 < heights; ++y1) {
        sums row = zero();
        const C* const from = P + (y0 * heights + y1) * s.width() * pair;
        for (index_t x = 0; x < s.width(); ++x) row = row + get(from, x);
        put(after, y1, row);  // the row alone, until the reverse sums are taken below
        put(before, y1 + 1, get(before, y1) + row);
      }
      put(after, heights, zero());
      for (index_t y1 = heights; y1-- > 0;) put(after, y1, get(after, y1 + 1) + get(after, y1));
      put(planes_before_, y0 + 1, get(planes_before_, y0) + get(before, heights));
    }
    put(planes_after_, s.grid[0], zero());
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
      sums elsewhere = (more_ + get(planes_before_, planes.lo)) + get(planes_after_, planes.hi);
      for (index_t i = planes.lo; i < planes.hi; ++i) {
        const index_t plane = i * (s.grid[1] + 1) * pair;
        elsewhere = elsewhere + (get(rows_before_ + plane, rows.lo) + get(rows_after_ + plane, rows.hi));
      }
      const window box = move_window(P, planes, rows, y1 == 0);
      put_uniform([&](index_t x) { return get(box.older, x) + get(box.newer, x); }, elsewhere);
    } else {
      put_uniform([&](index_t x) { return get(P, x); }, more_);
    }
  }

  const C* at(index_t x) const { return outside_ + x * pair; }

 private:
  using sums = vec_sum<C>;
  static sums zero() { return zero_sum<C>(); }
  static sums get(const C* p, index_t i) { return load_sum(p + i * pair); }
  static void put(C* p, index_t i, const sums& x) { store_sum(p + i * pair, x); }

  [[gnu::always_inline]] static void add_vector(C* to, const C* x, const C* y) { store(to, load(x) + load(y)); }
  static void add(C* to, const C* x, const C* y, index_t n) {
    constexpr index_t several = 14 * lanes<C>;
    index_t i = 0;
    for (; i + several <= n; i += several) {
      AFT_UNROLL(14)
      for (index_t j = 0; j < several; j += lanes<C>) add_vector(to + i + j, x + i + j, y + i + j);
    }
    for (; i < n; i += lanes<C>) add_vector(to + i, x + i, y + i);
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

  /// The box moves down: reverse sums of the rows at hand when the last ones were used up, and a sum of those that came
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

  /// outside[x] = elsewhere + the columns before and after the box.
  template <class Column>
  [[gnu::always_inline]] void put_uniform(const Column& column, const sums& elsewhere) {
    // Copies of what the loops use: a vector that is stored might alias the members.
    C* const outside = outside_;
    const index_t width = shape_->width();
    const row_complement<C> row(*shape_);
    row_sum<C> before, after(elsewhere);
    row.after(column, 0, width, after, outside);
    row.before(column, 0, width, before, outside);
  }

  const stencil_shape* shape_;
  sums more_ = zero();
  index_t begin_ = 0, end_ = 0;  ///< rows whose reverse sums front_ holds
  index_t next_ = 0;             ///< the first row that is in no sum yet
  C* outside_;
  C* newer_;  ///< rows from end_ on
  C* front_;
  C* rows_before_;
  C* rows_after_;
  C* planes_before_;
  C* planes_after_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
