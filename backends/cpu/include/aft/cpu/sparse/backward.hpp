// SPDX-License-Identifier: Apache-2.0
/// @file sparse/backward.hpp  Gradients of AFT-conv with a sparse filter: those of the dense filter that it is short
/// for.
///
/// Pairs without a tap have w = 0 inside a dense filter as outside of it, and w = -inf says there that they are
/// excluded. So the gradients are those of the smallest filter that holds all taps which reach a key, and a value's
/// gradient is its tap's. Which taps do is a matter of the length, and the filter's width one of the bits: of a packed
/// call every sequence has a filter of its own. That weighs every pair under the filter and not only the tapped ones;
/// what trains a filter until it is sparse has a dense one anyway (AFT Eq. 10).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <aft/core/problem/sequences.hpp>
#include <aft/core/views/element_access.hpp>

#include "../runtime/parallel.hpp"
#include "../runtime/workspace.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The dense filter of a call's taps: [head][tap] on the axes of the grid.
class tap_box {
 public:
  explicit tap_box(const problem& p) : list_(p.bias.taps), heads_(p.bias.heads), causal_(p.causal) {
    queries_ = keys_ = p.grid;
    if (p.grid[0] == 1 && p.grid[1] == 1) {
      queries_[2] = p.Tq;
      keys_[2] = p.Tk;
      first_ = list_.first_query;
      // Behind the last key a row sees all of them, and its place is a part of the offsets: however far behind it
      // stands, the filter is no longer than the sequence.
      if (first_ >= keys_[2]) {
        causal_ = false;
        moved_ = std::exchange(first_, 0);
      }
    }
    each_tap([&](index_t, index_t, const std::array<index_t, 3>& o) {
      for (std::size_t a = 0; a < 3; ++a) reach_[a] = max_of(reach_[a], max_of(o[a], -o[a]));
    });
  }

  bool causal() const { return causal_; }
  index_t first_query() const { return first_; }
  index_t left(std::size_t axis) const { return reach_[axis]; }
  /// "Same" placement, or that of a causal call: what conv derives from the number of taps is `left` either way.
  index_t taps(std::size_t axis) const { return reach_[axis] + (causal_ ? 0 : reach_[axis]) + 1; }
  index_t size() const { return taps(0) * taps(1) * taps(2); }

  /// f(head, tap, place in its head's filter) for every tap that reaches a key from some query.
  template <class F>
  void each_place(const F& f) const {
    each_tap([&](index_t h, index_t i, const std::array<index_t, 3>& o) {
      f(h, i, ((o[0] + left(0)) * taps(1) + o[1] + left(1)) * taps(2) + o[2] + left(2));
    });
  }

 private:
  template <class F>
  void each_tap(const F& f) const {
    for (index_t h = 0; h < heads_; ++h)
      for (index_t i = 0; i < list_.count; ++i) {
        std::array<index_t, 3> o{};
        bool reaches = true;
        for (index_t a = 0; a < list_.axes; ++a) {
          const auto axis = static_cast<std::size_t>(3 - list_.axes + a);
          o[axis] = list_.offset(h, i, a) + (axis == 2 ? moved_ : 0);
          // Compared with what both sides stay far from the ends of the integers by.
          reaches = reaches && o[axis] > -(queries_[axis] + first_) && o[axis] < keys_[axis];
        }
        if (reaches) f(h, i, o);
      }
  }

  const tap_list& list_;
  index_t heads_;
  bool causal_;
  std::array<index_t, 3> queries_{}, keys_{}, reach_{};
  index_t first_ = 0, moved_ = 0;
};

/// The multiply-adds of a sequence's gradients, about: those of the dense filter.
inline double sparse_backward_work(const problem& p) {
  const double pairs = static_cast<double>(p.Tq) * (2 * static_cast<double>(tap_box(p).size()) + 16);
  return static_cast<double>(p.B) * static_cast<double>(p.d) * (pairs + 16 * static_cast<double>(p.Tk));
}

/// The caller's room for gradients of values from those of the dense filter. `sums` has room for one of each value, and
/// is double as an axis that is summed has as many terms as there are heads or taps.
template <class C>
inline void write_value_gradients(const bias_ref& to, const tap_box& box, const tap_list& taps, index_t heads,
                                  const C* dense, double* sums) {
  const index_t rows = to.r_sh == 0 ? 1 : heads, columns = to.r_sj[2] == 0 ? 1 : taps.count;
  std::fill_n(sums, rows * columns, 0.0);
  box.each_place([&](index_t h, index_t i, index_t place) {
    sums[(rows == 1 ? 0 : h * columns) + (columns == 1 ? 0 : i)] += static_cast<double>(dense[h * box.size() + place]);
  });
  for (index_t h = 0; h < rows; ++h)
    for (index_t i = 0; i < columns; ++i)
      store_element(to.r, to.r_type, h * to.r_sh + i * to.r_sj[2], sums[h * columns + i]);
}

/// bias_kind::sparse, not packed, by `conv`, which is given a problem of bias_kind::filter. Scratch is O(H box), at
/// most O(T d), and O(H m).
template <class C>
void sparse_backward(const backward_problem& p, const cpu& exec, void (*conv)(const backward_problem&, const cpu&)) {
  const tap_box box(p);
  const index_t heads = p.bias.heads, size = box.size();
  const bool wants_values = p.dbias.kind != bias_kind::none;
  scratch memory(exec);
  C *filter = nullptr, *gradient = nullptr;
  double* sums = nullptr;
  const auto lay_out = [&](scratch& from) {
    filter = from.take<C>(heads * size);
    if (!wants_values) return;
    gradient = from.take<C>(heads * size);
    sums = from.take<double>(heads * max_of(p.bias.taps.count, 1));
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  std::fill_n(filter, heads * size, p.excluded ? -std::numeric_limits<C>::infinity() : C(0));
  box.each_place([&](index_t h, index_t i, index_t place) {
    filter[h * size + place] =
        static_cast<C>(load_element(p.bias.r, p.bias.r_type, h * p.bias.r_sh + i * p.bias.r_sj[2]));
  });

  backward_problem dense = p;
  const auto make_dense = [&](bias_ref& ref, C* data) {
    ref = {};
    ref.kind = bias_kind::filter;
    ref.heads = heads;
    ref.r = reinterpret_cast<std::byte*>(data);
    ref.r_type = dtype_of<C>;
    ref.r_set = true;
    ref.r_sh = size;
    ref.r_sj = {box.taps(1) * box.taps(2), box.taps(2), 1};
  };
  make_dense(dense.bias, filter);
  if (wants_values) make_dense(dense.dbias, gradient);
  for (std::size_t a = 0; a < 3; ++a) {
    dense.taps[a] = box.taps(a);
    dense.left[a] = box.left(a);
  }
  place_diagonal(dense, box.causal(), box.first_query());
  place_filter(dense, box.first_query());
  conv(dense, exec);
  if (wants_values && !is_trial(exec)) write_value_gradients(p.dbias, box, p.bias.taps, heads, gradient, sums);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
