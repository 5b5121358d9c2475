// SPDX-License-Identifier: Apache-2.0
/// @file window/sliding_keys.hpp  The packed keys of a window while it moves along the sequence, and the sums of all
/// others.
#pragma once

#include "../gemm/loop_nest.hpp"
#include "../gemm/pack_keys.hpp"
#include "lines.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Makes the packed columns of a few lane tiles.
template <class C>
class window_packer {
 public:
  static constexpr index_t most = column_chunk;  ///< columns that are formed at a time

  /// Columns [s0, s1) of tile i to P. `measured` adds them to what settled() looks at; as such columns are formed from
  /// the last to the first, rows that lie `most` before are then asked for.
  virtual void form(index_t i, index_t s0, index_t s1, C* P, bool measured) = 0;
  /// Only the latter.
  virtual void measure(index_t i, index_t s0, index_t s1) = 0;
  /// Called once all columns of tile i were formed or measured. False: scales were wrong, and what was formed has to be
  /// formed again.
  virtual bool settled(index_t i, column_scale<C>& cs) = 0;

  /// What columns are formed from, to ask for it ahead.
  const window_lines<C>& lines() const { return lines_; }

  window_packer(const window_packer&) = delete;
  window_packer& operator=(const window_packer&) = delete;

 protected:
  explicit window_packer(const window_lines<C>& lines) : lines_(lines) {}
  ~window_packer() = default;

 private:
  window_lines<C> lines_;
};

/// The packed columns of a group of lane tiles and their sums outside the windows.
template <class C>
class window_columns {
 public:
  static constexpr index_t N = tuning<C>::NR;
  static constexpr index_t M = tuning<C>::MR;
  static constexpr index_t L = lanes<C>;
  static constexpr index_t most = window_packer<C>::most;

  window_columns(const fold_plan<C>& plan, const fold_item& item, window_packer<C>& source)
      : plan_(&plan),
        source_(&source),
        count_(item.count),
        first_(item.first),
        last_(item.last),
        constant_(plan.g.constant && plan.sums),
        P_(plan.columns.of(item.slot)),
        before_(constant_ ? plan.before.of(item.slot) : nullptr),
        after_(constant_ ? plan.after.of(item.slot) : nullptr) {}

  /// Finds the scales, the sums after every panel and, if columns are kept, packs them all.
  void prepare(column_scale<C>* scales) {
    pass(0, count_, true);
    for (index_t i = 0; i < count_; ++i) {
      if (!source_->settled(i, scales[i])) pass(i, i + 1, false);
    }
    filled_ = plan_->keys_resident ? plan_->g.K : 0;
    for (index_t i = 0; before_ != nullptr && i < count_ * N; ++i) before_[i] = C(0);
  }

  /// Moves on to a panel whose dense columns are `span`. They are what at() reads; those before join the sum.
  void enter(const pair_geometry::span& span, bool dense) {
    if (!constant_ || plan_->g.causal < 0) {
      if (!plan_->keys_resident && filled_ < span.lo - plan_->history) filled_ = base_ = span.lo - plan_->history;
      at_ = span.lo;
    } else if (span.lo > at_) {
      join(span.lo);
    }
    if (dense) reach(span.hi);
  }
  const C* at(index_t i, index_t s) const { return P_ + i * plan_->column_size + (s - base_) * N; }

  /// The sums outside the dense columns of each band edge of the panel that was entered. What of the panel's columns
  /// lies beside a band edge's is summed apart before it joins the rest. `joins`: the next panel's begin a full panel's
  /// rows after this one's; then all that lies between is summed on the way.
  void uniform(index_t i, index_t panel, const pair_geometry::span& span, tile_edges edges, bool joins,
               uniform_sums<C>& sums) {
    const pair_geometry& g = plan_->g;
    if (!constant_) return;
    vec<C> num[edge_groups], den[edge_groups];
#pragma GCC unroll 4
    for (index_t edge_group = 0; edge_group < edge_groups; ++edge_group)
      num[edge_group] = den[edge_group] = vec<C>(C(0));
    if (g.causal >= 0) {
      C* const before = before_ + i * N;
      const vec<C> all_num = load(before), all_den = load(before + L);
      if (edges.begin) {
        add_band_edge<true>(at(i, span.lo), num, den);
        if (joins) {
          vec<C> last_num = num[edge_groups - 1], last_den = den[edge_groups - 1];
          add_columns<tuning<C>::edge_group(edge_groups - 1), M>(at(i, span.lo), last_num, last_den);
          store(before, all_num + last_num);
          store(before + L, all_den + last_den);
          at_ = span.lo + M;
        }
      }
      add_to_all(all_num, all_den, num, den);
    }
    if (g.causal <= 0) {
      const C* const after = after_ + (i * plan_->block + panel - first_) * N;
      vec<C> after_num[edge_groups], after_den[edge_groups];
#pragma GCC unroll 4
      for (index_t edge_group = 0; edge_group < edge_groups; ++edge_group)
        after_num[edge_group] = after_den[edge_group] = vec<C>(C(0));
      if (edges.end) add_band_edge<false>(at(i, span.hi), after_num, after_den);
      add_to_all(load(after), load(after + L), after_num, after_den);
#pragma GCC unroll 4
      for (index_t edge_group = 0; edge_group < edge_groups; ++edge_group) {
        num[edge_group] = num[edge_group] + after_num[edge_group];
        den[edge_group] = den[edge_group] + after_den[edge_group];
      }
    }
#pragma GCC unroll 4
    for (index_t edge_group = 0; edge_group < edge_groups; ++edge_group)
      sums.set(edge_group, num[edge_group], den[edge_group]);
  }

 private:
  static constexpr index_t edge_groups = tuning<C>::edge_groups;

  /// Through all keys from the last to the first. The runs between panels' edges are summed apart, as
  /// sum_uniform_keys does it.
  void pass(index_t i0, index_t i1, bool measured) {
    const pair_geometry& g = plan_->g;
    index_t at = constant_ && g.causal <= 0 ? pass_after(i0, i1, measured) : g.K;
    if (!plan_->keys_resident && !measured) return;
    for (; at > 0; at -= min_of(at, most)) {
      const index_t s = at > most ? at - most : 0;
      for (index_t i = i0; i < i1; ++i) {
        if (plan_->keys_resident) {
          form(i, s, at, measured);
        } else {
          source_->measure(i, s, at);
        }
      }
    }
  }

  /// Apart, so that its sums, like those of join_parts, are no part of the stack on which panels are finished.
  [[gnu::noinline]] index_t pass_after(index_t i0, index_t i1, bool measured) {
    index_t at = plan_->g.K;
    C sums[tuning<C>::wide_group * N];
    for (index_t i = i0 * N; i < i1 * N; ++i) sums[i] = C(0);
    for (index_t panel = plan_->panels; panel-- > first_;) {
      const index_t hi = plan_->cut.dense(plan_->g, panel).hi;
      if (hi < at) {
        for (index_t i = i0; i < i1; ++i) {
          vec<C> num(C(0)), den(C(0));
          for (index_t s = hi; s < at; s += most) {
            const index_t end = min_of(s + most, at);
            add(form(i, s, end, measured), end - s, num, den);
          }
          store(sums + i * N, load(sums + i * N) + num);
          store(sums + i * N + L, load(sums + i * N + L) + den);
        }
        at = hi;
      }
      for (index_t i = i0; panel < last_ && i < i1; ++i) {
        store(after_ + (i * plan_->block + panel - first_) * N, load(sums + i * N));
        store(after_ + (i * plan_->block + panel - first_) * N + L, load(sums + i * N + L));
      }
    }
    return at;
  }

  /// Forms columns of a tile, where they are kept or else somewhere.
  const C* form(index_t i, index_t s0, index_t s1, bool measured) {
    C* const to = P_ + i * plan_->column_size + (plan_->keys_resident ? s0 * N : 0);
    source_->form(i, s0, s1, to, measured);
    return to;
  }

  /// The columns of a full panel that lie before each of its band edge, from the panel's first one, `edge`, on; or
  /// those after each of them, up to `edge`.
  template <bool begin>
  static void add_band_edge(const C* edge, vec<C> (&num)[edge_groups], vec<C> (&den)[edge_groups]) {
    add_band_edge<begin>(edge, num, den, std::make_integer_sequence<index_t, edge_groups - 1>());
  }
  template <bool begin, index_t... i>
  static void add_band_edge(const C* edge, vec<C> (&num)[edge_groups], vec<C> (&den)[edge_groups],
                            std::integer_sequence<index_t, i...>) {
    constexpr auto row_of = [](index_t edge_group) { return tuning<C>::edge_group(edge_group); };
    vec<C> sum(C(0)), weight(C(0));
    (
        [&]() __attribute__((always_inline)) {
          constexpr index_t edge_group = begin ? i + 1 : edge_groups - 2 - i;
          if constexpr (begin) {
            add_columns<row_of(edge_group - 1), row_of(edge_group)>(edge, sum, weight);
          } else {
            add_columns<row_of(edge_group + 1) - M, row_of(edge_group + 2) - M>(edge, sum, weight);
          }
          num[edge_group] = sum;
          den[edge_group] = weight;
        }(),
        ...);
  }
  template <index_t from, index_t to>
  static void add_columns(const C* columns, vec<C>& num, vec<C>& den) {
#pragma GCC unroll 4
    for (index_t s = from; s < to; ++s) {
      num = num + load(columns + s * N);
      den = den + load(columns + s * N + L);
    }
  }
  static void add_to_all(const vec<C>& sum, const vec<C>& weight, vec<C> (&num)[edge_groups],
                         vec<C> (&den)[edge_groups]) {
#pragma GCC unroll 4
    for (index_t edge_group = 0; edge_group < edge_groups; ++edge_group) {
      num[edge_group] = num[edge_group] + sum;
      den[edge_group] = den[edge_group] + weight;
    }
  }

  static void add(const C* from, index_t count, vec<C>& num, vec<C>& den) {
    for (index_t s = 0; s < count; ++s) {
      num = num + load(from + s * N);
      den = den + load(from + s * N + L);
    }
  }

  /// Adds the run from at_ to lo, of which only a part may be packed at a time.
  void join(index_t lo) {
    const index_t room = plan_->sliding - plan_->history;
    if (lo - at_ <= room) {
      reach(lo);
      for (index_t i = 0; i < count_; ++i) {
        vec<C> num(C(0)), den(C(0));
        add(at(i, at_), lo - at_, num, den);
        store(before_ + i * N, load(before_ + i * N) + num);
        store(before_ + i * N + L, load(before_ + i * N + L) + den);
      }
      at_ = lo;
      return;
    }
    join_parts(lo, room);
  }
  [[gnu::noinline]] void join_parts(index_t lo, index_t room) {
    C sums[tuning<C>::wide_group * N] = {};
    while (at_ < lo) {
      const index_t end = min_of(at_ + room, lo);
      reach(end);
      for (index_t i = 0; i < count_; ++i) {
        vec<C> num = load(sums + i * N), den = load(sums + i * N + L);
        add(at(i, at_), end - at_, num, den);
        store(sums + i * N, num);
        store(sums + i * N + L, den);
      }
      at_ = end;
    }
    for (index_t x = 0; x < count_ * N; x += L) store(before_ + x, load(before_ + x) + load(sums + x));
  }

  /// Packs columns up to `end`. What lies a while before at_ is needed no more.
  void reach(index_t end) {
    while (filled_ < end) {
      if (filled_ == base_ + plan_->sliding) {
        const index_t from = at_ - plan_->history > base_ ? at_ - plan_->history : base_;
        for (index_t i = 0; i < count_; ++i) {
          C* const own = P_ + i * plan_->column_size;
          std::memmove(own, own + (from - base_) * N, static_cast<std::size_t>((filled_ - from) * N) * sizeof(C));
        }
        base_ = from;
      }
      index_t until = min_of(filled_ + most, end);
      until = until < base_ + plan_->sliding ? until : base_ + plan_->sliding;
      for (index_t i = 0; i < count_; ++i)
        source_->form(i, filled_, until, P_ + i * plan_->column_size + (filled_ - base_) * N, false);
      filled_ = until;
    }
  }

  const fold_plan<C>* plan_;
  window_packer<C>* source_;
  index_t count_, first_, last_;
  bool constant_;  ///< sums outside the windows are wanted
  C *P_, *before_, *after_;
  index_t base_ = 0;    ///< the column that lies first
  index_t filled_ = 0;  ///< columns are packed up to here
  index_t at_ = 0;      ///< columns are summed up to here
};

}  // namespace aft::inline AFT_ISA::cpu_impl
