// SPDX-License-Identifier: Apache-2.0
/// @file window/loop_nest.hpp  The sums of gemm/loop_nest.hpp where a window makes the dense part of every panel short.
///
/// Panel by panel through all lane tiles of a group, so that rows of every array are read and written as they lie in
/// memory and a panel's weights are read from the first-level cache. Of the packed columns only those of a window are
/// kept where a sequence is too long to keep all; the sums after a panel then take a pass of their own.
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

/// Where finishing a panel leaves its keys for the gradient of the bias: [Y v | -Y], where Y is `scale` times what the
/// panel's sums are multiplied by. NaN: not proven.
template <class C>
struct kept_keys {
  C* to;
  C scale[lanes<C>];
};

/// Finishes the sums of a panel if they need no more than most.
template <class C>
class window_epilogue {
 public:
  /// c are the sums of rows [r0, r1), `outside` those of the constant part; `keys` is null where they are not wanted.
  /// False: not done.
  virtual bool epilogue(index_t i, const column_scale<C>& cs, index_t r0, index_t r1, const row_scale<C>& rs,
                        const uniform_sums<C>& uniform, const C* c, kept_keys<C>* keys) const = 0;

  /// What will be read, and what will be written through the caches.
  const window_lines<C>& reads() const { return reads_; }
  const window_lines<C>& writes() const { return writes_; }

  window_epilogue(const window_epilogue&) = delete;
  window_epilogue& operator=(const window_epilogue&) = delete;

 protected:
  window_epilogue(const window_lines<C>& reads, index_t rows) : reads_(reads), writes_(rows) {}
  ~window_epilogue() = default;

  window_lines<C> reads_, writes_;
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
            const index_t end = s + most < at ? s + most : at;
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
      const index_t end = at_ + room < lo ? at_ + room : lo;
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
      index_t until = filled_ + most < end ? filled_ + most : end;
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

/// What is made of the keys and columns that a panel has at hand, besides its sums.
template <class C>
class pair_products {
 public:
  /// The scales of an item's columns are known.
  virtual void begin(const fold_item& item, const column_scale<C>* cs) = 0;
  /// Where a panel's keys go.
  virtual kept_keys<C>* keys(const fold_item& item, index_t i, index_t panel) = 0;
  /// All lane tiles of a pair of panels are finished, or of the last one alone.
  virtual void multiply(const fold_item& item, const window_columns<C>& columns, index_t panel) = 0;

  pair_products(const pair_products&) = delete;
  pair_products& operator=(const pair_products&) = delete;

 protected:
  pair_products() = default;
  ~pair_products() = default;
};

/// Takes a sum of a panel that window_epilogue has not finished, as in fold_pairs.
template <class C>
using epilogue_ref =
    function_ref<void(index_t, const column_scale<C>&, index_t, index_t, const row_scale<C>&, const C*, kept_keys<C>*)>;

/// Asks for what finishing tile i will touch of the panel that begins with row r: while a tile of `depth` steps is
/// multiplied, or at once where those are too few. Then it is the weights that are asked for meanwhile. Where there is
/// room for them, the same rows of `coming` are asked for besides.
template <class C>
inline prefetched_lines<C> prefetch_rows(const window_epilogue<C>& quick, const window_lines<C>& upcoming, index_t i,
                                         index_t r, index_t depth, const C* weights) {
  constexpr index_t M = tuning<C>::MR;
  const window_lines<C>&reads = quick.reads(), &writes = quick.writes();
  const index_t own = reads.count() + writes.count(), all = own + upcoming.count();
  prefetched_lines<C> lines = prefetched_lines<C>::of_weights(weights);
  if (own == 0) return lines;
  const index_t shared = ceil_div(depth, all);
  const index_t count = all <= prefetched_lines<C>::most && shared >= M && r + shared <= upcoming.end() ? all : own;
  const index_t length = ceil_div(depth, count);
  if (count > prefetched_lines<C>::most || length < M || r + length > reads.end()) {
    reads.prefetch_into(i, r, r + M);
    writes.prefetch_into(i, r, r + M, true);
    return lines;
  }
  lines.length = length;
  index_t f = 0;
  for (const window_lines<C>* from : {&reads, &writes, &upcoming}) {
    for (index_t j = 0; j < from->count() && f < count; ++j, ++f) {
      lines.first[f] = from->at(j, i, r);
      lines.step[f] = from->step(j);
    }
  }
  return lines;
}

/// The panels of one item. `products` may be null. `coming`: rows of columns that the thread forms after this item; in
/// that time they are brought to the second-level cache, which the item's own leave column by column.
template <class C>
[[gnu::noinline]] inline void fold_window_item(const fold_plan<C>& plan, int thread, const fold_item& item,
                                               window_packer<C>& source, const window_epilogue<C>& quick,
                                               const window_lines<C>& upcoming, pair_products<C>* products,
                                               epilogue_ref<C> epilogue) {
  constexpr index_t N = tuning<C>::NR;
  constexpr index_t M = tuning<C>::MR;
  constexpr index_t depth = tuning<C>::KC;
  const pair_geometry& g = plan.g;
  const index_t panel_size = plan.width * M;
  const C* const weights = plan.weights_of(thread);
  const row_scale<C>* const scales = plan.scales_of(thread);
  window_columns<C> columns(plan, item, source);
  column_scale<C>* const cs = plan.column_scales.of(item.slot);
  columns.prepare(cs);
  if (products != nullptr) products->begin(item, cs);
  C* const c = plan.tiles.of(item.slot);
  uniform_sums<C> uniform;
  for (index_t panel = g.constant && g.causal >= 0 ? 0 : item.first; panel < item.last; ++panel) {
    const index_t r0 = plan.cut.begin(panel);
    const index_t r1 = plan.cut.end(panel);
    const auto span = g.dense(r0, r1);
    const bool own = panel >= item.first;
    columns.enter(span, own);
    if (!own) continue;
    const C* const a = weights + (panel - item.block) * panel_size;
    const row_scale<C>& rs = scales[panel - item.block];
    const tile_edges edges = rs.edges;
    const bool joins = r1 - r0 == M && g.dense(r1, r1 + 1).lo == span.lo + M;
    for (index_t i = 0; i < item.count; ++i) {
      if (!plan.keys_resident) source.lines().prefetch_into(i, span.hi, span.hi + M);
      if (span.lo == span.hi || !plan.sums)
        for (index_t x = 0; x < (r1 - r0) * N; ++x) c[x] = C(0);
      for (index_t k0 = span.lo / depth * depth; plan.sums && k0 < span.hi; k0 += depth) {
        const index_t from = max_of(span.lo, k0);
        const index_t to = span.hi < k0 + depth ? span.hi : k0 + depth;
        const tile_edges here{edges.begin && from == span.lo, edges.end && to == span.hi};
        const index_t skipped_steps = plan.edge_steps * ((here.begin ? 1 : 0) + (here.end ? 1 : 0));  // ask for nothing
        const index_t steps = to - from - skipped_steps;
        const C* const part = a + (from - span.lo) * M;
        const C* const next = i == 0 && panel + 1 < item.last ? part + panel_size : part;
        gemm_panel<C, false>(r1 - r0, to - from, part, columns.at(i, from), c, from > span.lo,
                             from > span.lo ? prefetched_lines<C>::of_weights(next)
                                            : prefetch_rows<C>(quick, upcoming, i, r1, steps, next),
                             here);
      }
      columns.uniform(i, panel, span, edges, joins, uniform);
      kept_keys<C>* const keys = products != nullptr ? products->keys(item, i, panel) : nullptr;
      if (quick.epilogue(i, cs[i], r0, r1, rs, uniform, c, keys)) continue;
      if (g.constant) add_uniform_keys<C>(r1 - r0, rs, uniform, c);
      epilogue(item.tile + i, cs[i], r0, r1, rs, c, keys);
    }
    if (products != nullptr && (panel % plan.pair_step == plan.pair_step - 1 || panel + 1 == item.last))
      products->multiply(item, columns, panel);
  }
}

/// fold_pairs for the plan's windows: `run` calls fold_window_item for an item.
template <class C>
[[gnu::noinline]] inline void fold_window(const fold_plan<C>& plan, int thread, index_t tiles, fill_ref<C> fill,
                                          function_ref<void(const fold_item&)> run) {
  for (index_t p0 = 0; p0 < plan.panels; p0 += plan.block) {
    const index_t p1 = p0 + plan.block < plan.panels ? p0 + plan.block : plan.panels;
    pack_weights<C>(plan, thread, p0, p1, fill);
    for_each_item<C>(plan, thread, tiles, p0, p1, run);
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
