// SPDX-License-Identifier: Apache-2.0
/// @file stencil/sequence.hpp  The forward call of a convolution in one dimension, a part of the sequence at a time.
///
/// On a grid every output needs keys from many rows, and a lane tile keeps the weights of all its keys while it is
/// worked on. In one dimension an output needs the few keys under its box and a sum of the others. So the weights of a
/// few dozen keys are kept, but of many lane tiles side by side: memory is read and written in long runs, and what
/// is kept stays in the caches however long the sequence is.
#pragma once

#include <algorithm>
#include <cstring>

#include "store.hpp"
#include "worker.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// A forward call after its preparation.
template <class C>
struct stencil_call {
  const problem& p;
  const stencil_shape& shape;
  const lane_plan<C>& plan;
  const stencil_table<C>* tables;
  query_results wanted;
};

/// Buffers of one thread, for `tiles` lane tiles.
template <class C>
struct sequence_worker {
  static constexpr index_t block = query_block<C>::most;

  index_t apart = 0;             ///< from one lane tile's keys to the next one's
  index_t blocks = 0;            ///< of the sequence
  C* P = nullptr;                ///< two vectors a key
  C* gates = nullptr;            ///< q of a block
  C* outside = nullptr;          ///< sums for a block of one lane tile
  row_sum<C>* before = nullptr;  ///< for every lane tile: what the last output saw before its box
  row_sum<C>* after = nullptr;   ///< for every lane tile and block: what its first output sees after its box
  row_sum<C>* beyond = nullptr;  ///< for every lane tile: what all outputs see besides, keys of other ranks
  column_scales<C>* scales = nullptr;
  key_range<C>* sizes = nullptr;
  query_outputs<C>* outputs = nullptr;
  query_block<C>* results = nullptr;

  void take(const stencil_shape& shape, index_t tiles, scratch& memory) {
    const row_complement<C> row(shape);
    const index_t keys = block + row.reach_before() + row.reach_after();
    // An odd number of keys, so that lane tiles do not share the sets of a cache.
    apart = (keys | 1) * row.pair;
    blocks = ceil_div(shape.width(), block);
    P = memory.take<C>(tiles * apart);
    gates = memory.take<C>(tiles * block * lanes<C>);
    outside = memory.take<C>(shape.complement() ? block * row.pair : 0);
    before = memory.take<row_sum<C>>(tiles);
    after = memory.take<row_sum<C>>(shape.after ? tiles * (blocks + 1) : 0);
    beyond = memory.take<row_sum<C>>(tiles);
    scales = memory.take<column_scales<C>>(tiles);
    sizes = memory.take<key_range<C>>(tiles);
    outputs = memory.take<query_outputs<C>>(tiles);
    results = memory.take<query_block<C>>(1);
  }
};

/// Neighbouring lane tiles of one group of batch elements, from the first block of queries to the last.
template <class C>
class sequence_fold {
 public:
  /// Most lane tiles.
  static constexpr index_t most = tuning_stencil<C>::sequence_bytes / (lanes<C> * static_cast<index_t>(sizeof(C)));

  sequence_fold(const stencil_call<C>& call, const sequence_worker<C>& worker, const stencil_item& tiles)
      : call_(call),
        p_(call.p),
        worker_(worker),
        row_(call.shape),
        first_(tiles.first),
        count_(tiles.count()),
        inputs_(call.p, call.plan.tile(tiles.group, tiles.first)) {
    for (index_t j = 0; j < count_; ++j) {
      tiles_[j] = call.plan.tile(tiles.group, first_ + j);
      ::new (worker.outputs + j) query_outputs<C>(call.p, tiles_[j]);
    }
    in_place_ = {call.p, tiles_, count_};
  }

  void run() {
    try_scale_one();
    if (call_.shape.after) {
      sum_after();
      settled_ = true;
      if (!settle()) sum_after();
    }
    begin();
    for (index_t t0 = 0; t0 < p_.Tq; t0 += block) {
      const index_t t1 = min_of(p_.Tq, t0 + block);
      if (!hold(t0, t1)) hold_again(t0, t1);
      if (!in_place_.queries && p_.gate_fn != gate::none)
        read_tiles<C>(p_.q, p_.grid, tiles_, count_, 1, t0, t1, worker_.gates, block * lanes<C>, lanes<C>);
      for (index_t j = 0; j < count_; ++j) queries(j, t0, t1);
    }
    fence_stores();
  }

 private:
  static constexpr index_t block = sequence_worker<C>::block;
  static constexpr index_t pair = row_complement<C>::pair;

  far_lanes<C> afar(index_t j) const { return {p_, tiles_[j]}; }
  /// What outputs see besides, by the scales that are tried.
  void find_beyond() const {
    for (index_t j = 0; j < count_; ++j) worker_.beyond[j] = row_sum<C>(far_column<C>(afar(j), worker_.scales[j]));
  }
  C* keys_of(index_t j) const { return worker_.P + j * worker_.apart; }
  row_sum<C>& after(index_t j, index_t i) const { return worker_.after[j * (worker_.blocks + 1) + i]; }
  /// Column x of lane tile j, where `origin` is the first key that is held.
  auto columns(index_t j, index_t origin) const {
    return [ P = keys_of(j), origin ](index_t x) __attribute__((always_inline)) {
      return load_sum(P + (x - origin) * pair);
    };
  }

  void try_scale_one() {
    for (index_t j = 0; j < count_; ++j) {
      store(worker_.scales[j].exponent, vec<C>(C(0)));
      store(worker_.scales[j].unit, first_key<C>(p_, tiles_[j]).unit());
      store(worker_.scales[j].scale, vec<C>(C(1)));
      worker_.sizes[j] = key_range<C>();
      afar(j).measure(worker_.sizes[j]);
    }
  }
  /// Scales by the keys that were measured; false where 1 does not serve for all of them.
  bool settle() {
    bool serves = true;
    for (index_t j = 0; j < count_; ++j) {
      const key_range<C>& range = worker_.sizes[j];
      const stencil_table<C>& table = call_.tables[first_ + j];
      column_scales<C>& cs = worker_.scales[j];
      if (set_ordinary_keys<C>(range.top, table, cs) && set_ordinary_values<C>(range.values, cs)) continue;
      set_scales<C>(range, table, lane_scaling::usual, cs);
      serves = false;
    }
    return serves;
  }

  /// Copies keys [s0, s1) to column `at` and so on, where they cannot be used as they lie.
  void stage(index_t s0, index_t s1, index_t at) {
    if (!in_place_.columns) stage_columns<C>(p_, tiles_, count_, s0, s1, worker_.P + at * pair, worker_.apart);
  }
  /// Those of lane tile j.
  column_rows<C> staged(index_t j, index_t s0, index_t at) const {
    if (!in_place_.columns) return column_rows<C>::staged(keys_of(j) + at * pair);
    return column_rows<C>::in_place(inputs_.k, inputs_.v, s0, j * lanes<C>);
  }
  /// Weighs them, and measures them as long as scale 1 is tried.
  void weigh(index_t j, index_t s0, index_t s1, index_t at) {
    C* const P = keys_of(j) + at * pair;
    if (settled_) {
      weigh_columns<false>(worker_.scales[j], staged(j, s0, at), s1 - s0, P, worker_.sizes[j]);
    } else {
      weigh_columns<true>(worker_.scales[j], staged(j, s0, at), s1 - s0, P, worker_.sizes[j]);
    }
  }

  /// What every block sees after its boxes, from the last block to the first. All keys are then measured, if scale 1 is
  /// tried.
  void sum_after() {
    find_beyond();
    for (index_t j = 0; j < count_; ++j) after(j, worker_.blocks) = worker_.beyond[j];
    const auto first_key = [&](index_t i) { return i == 0 ? 0 : min_of(p_.Tk, i * block + row_.reach_after()); };
    for (index_t i = worker_.blocks; i-- > 0;) {
      const index_t s0 = first_key(i), s1 = first_key(i + 1);
      stage(s0, s1, 0);
      for (index_t j = 0; j < count_; ++j) {
        if (i > 0) prefetch_keys(j, first_key(i - 1), s0);
        weigh(j, s0, s1, 0);
        after(j, i) = after(j, i + 1);
        row_.after(columns(j, s0), i * block, min_of(p_.Tq, (i + 1) * block), after(j, i), nullptr);
      }
    }
  }

  /// Before the first output.
  void begin() {
    begin_ = end_ = 0;
    find_beyond();
    for (index_t j = 0; j < count_; ++j) {
      worker_.before[j] = row_sum<C>();
      const far_lanes<C> others = afar(j);
      for (index_t l = 0; l < lanes<C>; ++l) worker_.scales[j].first[l] = others.any && others.sees(l) ? 0 : p_.Tk;
    }
  }

  /// Weights of the keys that outputs [t0, t1) look at. False where they were tried with scale 1 and it does not serve.
  bool hold(index_t t0, index_t t1) {
    const index_t begin = max_of(0, t0 - row_.reach_before());
    const index_t end = min_of(p_.Tk, t1 + row_.reach_after());
    const index_t kept = end_ - begin;
    for (index_t j = 0; j < count_; ++j) {
      C* const P = keys_of(j);
      std::memmove(P, P + (begin - begin_) * pair, static_cast<std::size_t>(kept * pair) * sizeof(C));
    }
    stage(end_, end, kept);
    for (index_t j = 0; j < count_; ++j) weigh(j, end_, end, kept);
    if (!settled_ && !settle()) return false;
    begin_ = begin;
    for (index_t j = 0; j < count_; ++j) find_first(j, end_, end);
    end_ = end;
    return true;
  }

  /// Where scale 1 does not serve, with the scales for all keys, and the sums before them once more. What was stored
  /// remains: powers of two do not change its bits, and q may have been overwritten by it.
  void hold_again(index_t t0, index_t t1) {
    for (index_t s0 = end_; s0 < p_.Tk; s0 += block) {
      const index_t s1 = min_of(p_.Tk, s0 + block);
      stage(s0, s1, 0);
      for (index_t j = 0; j < count_; ++j) measure_columns<C>(staged(j, s0, 0), s1 - s0, worker_.sizes[j]);
    }
    settle();
    settled_ = true;
    begin();
    for (index_t done = 0; done < t0; done += block) {
      hold(done, done + block);
      for (index_t j = 0; j < count_; ++j) sum_uniform(j, done, done + block);
    }
    hold(t0, t1);
  }

  /// Lanes whose first visible key does not lie before s0 find it before s1.
  void find_first(index_t j, index_t s0, index_t s1) {
    const C* const weights = keys_of(j) + lanes<C>;
    for (index_t l = 0; l < tiles_[j].count; ++l) {
      index_t& first = worker_.scales[j].first[l];
      for (index_t s = s0; s < s1 && first == p_.Tk; ++s)
        if (!std::signbit(weights[(s - begin_) * pair + l])) first = s;
    }
  }

  /// While lane tile j is worked on, its part of the rows to be read next is asked for, all lines of a row at once.
  [[gnu::always_inline]] void prefetch_keys(index_t j, index_t s0, index_t s1) const {
    const index_t from = s0 + (s1 - s0) * j / count_;
    const index_t to = s0 + (s1 - s0) * (j + 1) / count_;
    inputs_.k.prefetch(from, to, count_);
    inputs_.v.prefetch(from, to, count_);
  }
  [[gnu::always_inline]] void prefetch_queries(index_t j, index_t t0, index_t t1) const {
    const index_t from = t0 + (t1 - t0) * j / count_;
    const index_t to = t0 + (t1 - t0) * (j + 1) / count_;
    inputs_.q.prefetch(from, to, count_);
  }

  /// What outputs [t0, t1) see outside their boxes.
  void sum_uniform(index_t j, index_t t0, index_t t1) {
    const stencil_shape& shape = call_.shape;
    if (!shape.complement()) return;
    row_sum<C> seen = shape.after ? after(j, t0 / block + 1) : worker_.beyond[j];
    row_.after(columns(j, begin_), t0, t1, seen, worker_.outside);
    row_.before(columns(j, begin_), t0, t1, worker_.before[j], worker_.outside);
  }

  /// Results of queries [t0, t1), whose gates were read.
  void queries(index_t j, index_t t0, index_t t1) {
    prefetch_keys(j, end_, min_of(p_.Tk, end_ + block));
    if (p_.gate_fn != gate::none) prefetch_queries(j, t1, min_of(p_.Tq, t1 + block));
    const stencil_shape& shape = call_.shape;
    const stencil_table<C>& table = call_.tables[first_ + j];
    sum_uniform(j, t0, t1);
    stencil_run<C> run;
    run.weights = table.weights;
    run.in = keys_of(j);
    run.planes = run.rows = 1;
    run.taps = shape.taps[2];
    run.width = end_ - begin_;
    run.shift = t0 - shape.left[2] - begin_;
    run.rest = shape.complement() ? worker_.outside : nullptr;
    run.outside = table.outside;
    query_block<C>& results = *worker_.results;
    stencil_outputs<C, 1>(run, 0, t1 - t0, results.sums);
    query_fold<C> fold(p_, shape, table, tiles_[j], worker_.scales[j], keys_of(j), begin_);
    fold.y = worker_.outputs[j].whole_rows();
    fold.weigh_losses(end_ - begin_);
    gate_inputs<C> gates{worker_.gates + j * block * lanes<C>};
    if (in_place_.queries) gates = {inputs_.q.row(t0) + j * lanes<C>, inputs_.q.step()};
    fold.epilogue(t0, t1, call_.wanted, gates, results);
    worker_.outputs[j].store_queries(t0, t1, results);
  }

  const stencil_call<C>& call_;
  const problem& p_;
  const sequence_worker<C>& worker_;
  row_complement<C> row_;
  index_t first_, count_;
  lane_tile<C> tiles_[most];
  query_inputs<C> inputs_;  ///< of the first lane tile
  tiles_in_place<C> in_place_;
  index_t begin_ = 0, end_ = 0;  ///< keys whose weights are held
  bool settled_ = false;         ///< scales are those of all keys
};

/// Whether the call is one over a sequence, and working on parts of it pays. `grouped`: denominators could be folded
/// apart.
template <class C>
inline bool goes_by_parts(const stencil_shape& shape, index_t d, bool grouped) {
  using tuning = tuning_stencil<C>;
  const bool few = d < tuning::sequence_tiles * lanes<C>;
  const index_t causal = few ? tuning::sequence_few : (grouped ? tuning::sequence_apart : tuning::sequence);
  const index_t least = shape.after ? max_of(causal, tuning::sequence_twice) : causal;
  const index_t taps = grouped ? tuning::sequence_taps_apart : tuning::sequence_taps;
  return shape.rows() == 1 && shape.width() >= least && shape.taps[2] <= taps;
}

/// The whole call, on a grid of one row. O(B T taps d) multiply-adds, O(taps) scratch per thread and lane tile.
template <class C>
void sequence_forward(const problem& p, const stencil_shape& shape, const cpu& exec, scratch& memory) {
  const lane_plan<C> plan(p.B, p.d);
  const index_t most = sequence_fold<C>::most;
  const index_t wanted = (2 * thread_count(exec) + plan.groups - 1) / plan.groups;
  const index_t segments = min_of(plan.tiles, max_of(wanted, ceil_div(plan.tiles, most)));
  const int threads = worker_count(exec, segments * plan.groups);
  stencil_table<C>* tables = nullptr;
  sequence_worker<C>* workers = nullptr;
  const auto lay_out = [&](scratch& from) {
    tables = take_tables<C>(shape, plan.tiles, false, from);
    workers = take_workers<sequence_worker<C>>(from, threads, shape, ceil_div(plan.tiles, segments));
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  parallel_for(plan.tiles, threads, [&](index_t i, int) { fill_table<C>(p, shape, plan.tile(0, i), tables[i]); });
  const stencil_call<C> call{p, shape, plan, tables, p.lse.set ? query_results::logs : query_results::averages};
  parallel_for(segments * plan.groups, threads, [&](index_t item, int thread) {
    const stencil_item tiles{item / segments, plan.tiles * (item % segments) / segments,
                             plan.tiles * (item % segments + 1) / segments};
    sequence_fold<C>(call, workers[thread], tiles).run();
  });
}

}  // namespace aft::inline AFT_ISA::cpu_impl
