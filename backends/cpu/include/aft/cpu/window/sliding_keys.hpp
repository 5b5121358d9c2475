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
    for (index_t i = 0; before_ != nullptr && i < count_; ++i)
      store_sum(before_ + i * N, plan_->g.more ? load_sum(scales[i].more) : zero_sum<C>());
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
    vec_sum<C> before[edge_groups], after[edge_groups];
    AFT_UNROLL(4)
    for (index_t e = 0; e < edge_groups; ++e) before[e] = after[e] = zero_sum<C>();
    if (g.causal >= 0) {
      C* const kept = before_ + i * N;
      const vec_sum<C> all = load_sum(kept);
      if (edges.begin) {
        add_band_edge<true>(at(i, span.lo), before);
        if (joins) {
          constexpr index_t last = tuning<C>::edge_group(edge_groups - 1);
          store_sum(kept, all + add_few<last, M>(at(i, span.lo), before[edge_groups - 1]));
          at_ = span.lo + M;
        }
      }
      AFT_UNROLL(4)
      for (index_t e = 0; e < edge_groups; ++e) before[e] = before[e] + all;
    }
    if (g.causal <= 0) {
      const vec_sum<C> all = load_sum(after_ + (i * plan_->block + panel - first_) * N);
      if (edges.end) add_band_edge<false>(at(i, span.hi), after);
      AFT_UNROLL(4)
      for (index_t e = 0; e < edge_groups; ++e) before[e] = before[e] + (after[e] + all);
    }
    AFT_UNROLL(4)
    for (index_t e = 0; e < edge_groups; ++e) sums.set(e, before[e]);
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
          vec_sum<C> run = zero_sum<C>();
          for (index_t s = hi; s < at; s += most) {
            const index_t end = min_of(s + most, at);
            run = add_columns<C>(form(i, s, end, measured), end - s, run);
          }
          store_sum(sums + i * N, load_sum(sums + i * N) + run);
        }
        at = hi;
      }
      for (index_t i = i0; panel < last_ && i < i1; ++i)
        store_sum(after_ + (i * plan_->block + panel - first_) * N, load_sum(sums + i * N));
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
  static void add_band_edge(const C* edge, vec_sum<C> (&sums)[edge_groups]) {
    add_band_edge<begin>(edge, sums, std::make_integer_sequence<index_t, edge_groups - 1>());
  }
  template <bool begin, index_t... i>
  static void add_band_edge(const C* edge, vec_sum<C> (&sums)[edge_groups], std::integer_sequence<index_t, i...>) {
    constexpr auto row_of = [](index_t edge_group) { return tuning<C>::edge_group(edge_group); };
    vec_sum<C> sum = zero_sum<C>();
    (
        [&]() __attribute__((always_inline)) {
          constexpr index_t edge_group = begin ? i + 1 : edge_groups - 2 - i;
          if constexpr (begin) {
            sum = add_few<row_of(edge_group - 1), row_of(edge_group)>(edge, sum);
          } else {
            sum = add_few<row_of(edge_group + 1) - M, row_of(edge_group + 2) - M>(edge, sum);
          }
          sums[edge_group] = sum;
        }(),
        ...);
  }
  template <index_t from, index_t to>
  static vec_sum<C> add_few(const C* columns, vec_sum<C> sum) {
    AFT_UNROLL(4)
    for (index_t s = from; s < to; ++s) sum = sum + load_sum(columns + s * N);
    return sum;
  }

  /// Adds the run from at_ to lo, of which only a part may be packed at a time.
  void join(index_t lo) {
    const index_t room = plan_->sliding - plan_->history;
    if (lo - at_ <= room) {
      reach(lo);
      for (index_t i = 0; i < count_; ++i) {
        const vec_sum<C> run = add_columns<C>(at(i, at_), lo - at_, zero_sum<C>());
        store_sum(before_ + i * N, load_sum(before_ + i * N) + run);
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
        store_sum(sums + i * N, add_columns<C>(at(i, at_), end - at_, load_sum(sums + i * N)));
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
