// SPDX-License-Identifier: Apache-2.0
/// @file scan/keys.hpp  Chunks of keys of a column block through the fold; what the forward and the backward scan
/// share.
#pragma once

#include <algorithm>

#include "../runtime/parallel.hpp"
#include "../runtime/workspace.hpp"
#include "far_sums.hpp"
#include "kernel.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// The buffers of one thread, cut from one block.
template <class C>
struct key_workspace {
  fold_lanes<C> chunk, before;
  fold_view<C> view;
  C* keys = nullptr;
  C* values = nullptr;
  C* zeros = nullptr;  ///< a row, for tensors that are not needed
  C* ones = nullptr;   ///< a row, for values that are not needed

  static index_t size(index_t width) {
    return width * (2 * fold_lanes<C>::arrays + fold_view<C>::arrays + 2 * scan_tuning<C>::rows + 2);
  }

  key_workspace(C* at, index_t width) {
    C *chunk_at, *before_at;
    at = cut_arrays(at, fold_lanes<C>::arrays * width, {&chunk_at, &before_at});
    chunk = {chunk_at, width};
    before = {before_at, width};
    view = {at, width};
    at = cut_arrays(at + fold_view<C>::arrays * width, scan_tuning<C>::rows * width, {&keys, &values});
    cut_arrays(at, width, {&zeros, &ones});
    std::fill_n(zeros, width, C(0));
    std::fill_n(ones, width, C(1));
  }
};

/// Stands for rows that nobody wants.
struct no_rows {
  static constexpr emission what = emission::nothing;
  static constexpr narrow_loop loop = narrow_loop::sums;
  template <class C>
  scan_rows<C> open(const segment&, index_t, index_t) const {
    return {};
  }
  void close(const segment&, index_t, index_t) const {}
  bool in_place(const segment&) const { return true; }
  template <class T>
  bool lies_as(const segment&) const {
    return true;
  }
};

template <class C>
class key_scan {
 public:
  /// Without values only the weights are summed.
  key_scan(const problem& p, const scan_plan<C>& plan, bool uncached, bool with_values = true)
      : p_(p), plan_(plan), k_(p.k, p.d, p.d / p.hk), v_(p.v, p.d, 1), with_values_(with_values), uncached_(uncached) {}

  static index_t chunks(index_t n) { return scan_plan<C>::chunks(n); }

  /// Keys from here on are hidden from the whole column block, or seen by no row of a causal problem.
  index_t end(const column_block& x) const {
    index_t most = 0;
    for (index_t b = plan_.first_batch(x); b <= plan_.last_batch(x); ++b) most = max_of(most, p_.key_limit(b));
    return p_.causal ? min_of(most, p_.Tq) : most;
  }

  /// workspace.chunk = the sums over keys [s0, s1) of one chunk; the emitter gets the row of every key.
  template <class Emitter>
  AFT_COMPILE_ONCE void fold(const column_block& x, index_t s0, index_t s1, const key_workspace<C>& workspace,
                             const Emitter& rows_to) const {
    constexpr emission what = Emitter::what;
    constexpr bool wanted = what != emission::nothing;
    fold_job<C> job{workspace.chunk, workspace.before, workspace.view, {}, 0, uncached_, false, lowers()};
    job.chunk.clear(padded(x));
    if (s0 < s1) {
      plan_.for_segments(x, [&](const segment& part) {
        enter_references<C>(job.chunk, part, read_keys(part, s0, 1, workspace.keys),
                            read_values(part, s0, 1, workspace));
        job.units = find_units(part, s0, s1, workspace, job.chunk) || job.units;
      });
    }
    start<wanted>(x, job);
    constexpr index_t few = scan_tuning<C>::uncached_rows;
    const index_t rows = panel_rows<C>(uncached_ && what != emission::any);
    plan_.for_segments(x, [&](const segment& part) {
      if (try_narrow_rows(plan_.narrow(), narrow_fold<Emitter>{this, &part, s0, s1, &job, &rows_to})) return;
      job.row = 0;
      const bool whole = lies_as<C>(part) && (!with_values_ || v_.direct(part)) && rows_to.in_place(part);
      const auto open = [&](index_t s, index_t n) {
        fold_inputs<C> in{read_keys(part, s, n, workspace.keys), read_values(part, s, n, workspace), {}};
        if constexpr (wanted) in.out = rows_to.open(part, s, n);
        return in;
      };
      const auto fold = [&](const fold_inputs<C>& in, index_t n) {
        if constexpr (what != emission::any) {
          if (rows == few) return scan_panels<C, what, few>(job, part, in, n);
        }
        scan_panels<C, what, scan_tuning<C>::rows>(job, part, in, n);
      };
      for_panels(s0, s1, rows, whole, open, fold,
                 [&](index_t s, index_t n, const fold_inputs<C>&) { rows_to.close(part, s, n); });
    });
  }

  /// workspace.before += all keys, chunk by chunk.
  AFT_COMPILE_ONCE void fold_all(const column_block& x, const key_workspace<C>& workspace) const {
    const index_t last = end(x);
    for (index_t s = 0; s < last; s += scan_tuning<C>::chunk) {
      fold(x, s, min_of(s + scan_tuning<C>::chunk, last), workspace, no_rows{});
      advance(x, workspace);
    }
  }

  /// workspace.before += workspace.chunk
  AFT_COMPILE_ONCE void advance(const column_block& x, const key_workspace<C>& workspace) const {
    merge_folds<C>(workspace.before, workspace.chunk, padded(x));
  }

  /// The row that sees exactly the keys of workspace.before, at lane positions of `out`. Changes workspace.chunk.
  AFT_COMPILE_ONCE void last_row(const column_block& x, const key_workspace<C>& workspace,
                                 const scan_rows<C>& out) const {
    const fold_job<C> job{workspace.chunk, workspace.before, workspace.view, out, 0, uncached_, false, lowers()};
    job.chunk.clear(padded(x));
    start<true>(x, job);
    emit_row(x, job);
  }
  /// The row that also sees those of a chunk whose rows have been emitted.
  void row_after_chunk(const column_block& x, const key_workspace<C>& workspace, const scan_rows<C>& out) const {
    emit_row(x, {workspace.chunk, workspace.before, workspace.view, out, 0, uncached_, false, lowers()});
  }
  /// Rows [s1, t1) after those of a chunk that began at t0, for f(t, end) in parts that are each one row: a lane whose
  /// neighbours go on with keys passes the end of its run.
  template <class F>
  void rows_after_chunk(const column_block& x, index_t t0, index_t s1, index_t t1, const key_workspace<C>& workspace,
                        const F& f) const {
    const index_t end = min_of(t1, t0 + round_up(s1 - t0, scan_tuning<C>::run));
    if (s1 < end) f(s1, end);
    if (end == t1) return;
    end_run<C, true>(workspace.chunk, workspace.view, 0, padded(x));
    f(end, t1);
  }

  /// Whether keys of a segment are read where they lie, as T.
  template <class T>
  bool lies_as(const segment& x) const {
    return as_stored() && k_.template lies_as<T>(x);
  }
  /// Then they are here from key s on.
  template <class T>
  panel<T> in_place(const segment& x, index_t s) const {
    return k_.template in_place<T>(x, s);
  }
  panel<C> read_keys(const segment& x, index_t s, index_t n, C* buffer) const {
    if (as_stored()) return k_.read(x, s, n, buffer);
    const panel<C> keys = k_.copy(x, s, n, buffer);
    hide_panel_keys<C>(p_, x, s, n, keys);
    return keys;
  }

  panel<C> read_values(const segment& x, index_t s, index_t n, const key_workspace<C>& workspace) const {
    return with_values_ ? v_.read(x, s, n, workspace.values) : panel<C>{workspace.ones, 0};
  }

  /// The loops of fold() for rows of 16-bit numbers. Four rows at a time even in memory: two would be 0.98 to 1.01 of
  /// the time, and kernels of their own to compile (268 MB as floats; Zen 4, 2026-11).
  template <class Emitter>
  struct narrow_fold {
    static constexpr narrow_loop loop = Emitter::loop;
    const key_scan* keys;
    const segment* part;
    index_t s0, s1;
    const fold_job<C>* wide;
    const Emitter* rows_to;

    template <class T>
    bool run() const {
      const segment& x = *part;
      if (!keys->template lies_as<T>(x) || !keys->with_values_ || !keys->v_.template lies_as<T>(x) ||
          !rows_to->template lies_as<T>(x))
        return false;
      constexpr emission what = Emitter::what;
      fold_job<C, T> job{wide->chunk, wide->before, wide->view, {}, 0, wide->uncached, wide->units, wide->lowers};
      fold_inputs<C, T> in{keys->template in_place<T>(x, s0), keys->v_.template in_place<T>(x, s0), {}};
      if constexpr (what != emission::nothing) in.out = rows_to->template rows_as<T>(x, s0);
      scan_panels<C, what, scan_tuning<C>::rows>(job, x, in, s1 - s0);
      return true;
    }
  };

  /// Lanes that a column block uses.
  static index_t padded(const column_block& x) { return round_up(x.count, lanes<C>); }

 private:
  bool as_stored() const { return p_.mask == nullptr && (p_.lengths.data == nullptr || !plan_.packed()); }

  bool lowers() const { return p_.d >= lanes<C>; }

  /// Whether some key_unit of keys [s0, s1) is not 1. In causal order it is that of the sequence's first key, so that a
  /// row has the same bits whether it passes through a chunk or follows from the sums of all; and for the same reason
  /// there is none where other keys come before these.
  bool find_units(const segment& x, index_t s0, index_t s1, const key_workspace<C>& workspace,
                  const fold_lanes<C>& chunk) const {
    if (p_.lengths.less > 0 || p_.afar.joins_rows()) return false;
    if (!p_.causal && (s1 - s0 == 1 || needs_no_units<C>(x, read_keys(x, s0, 2, workspace.keys)))) return false;
    begin_units<C>(chunk, x);
    for (index_t s = p_.causal ? 0 : s0; s < s1; ++s)
      if (enter_units<C>(chunk, x, read_keys(x, s, 1, workspace.keys), p_.causal)) break;
    return end_units<C>(chunk, x);
  }

  AFT_COMPILE_ONCE static void emit_row(const column_block& x, const fold_job<C>& job) {
    for (index_t l = 0; l < padded(x); l += lanes<C>)
      emit_any<C>(job, l, l, 0, load(job.chunk.num + l), load(job.chunk.den + l));
  }

  template <bool Emit>
  void start(const column_block& x, const fold_job<C>& job) const {
    for (index_t l = 0; l < padded(x); l += lanes<C>)
      update_view<C, Emit>(job.chunk, job.before, job.view, l, job.lowers);
  }

  const problem& p_;
  const scan_plan<C>& plan_;
  columns<C> k_;
  columns<C> v_;
  bool with_values_;
  bool uncached_;
};

/// The sums over all keys, or over those before each chunk, by threads: round by round some chunks are summed apart and
/// then joined in order. The sums are the same as if one thread had gone through the chunks.
template <class C>
class key_prefix {
 public:
  key_prefix(const problem& p, const scan_plan<C>& plan, const key_scan<C>& keys, int threads, scratch& memory)
      : p_(p),
        plan_(plan),
        keys_(keys),
        chunks_(key_scan<C>::chunks(p.causal ? min_of(p.Tk, p.Tq) : p.Tk)),
        kept_(p.causal ? chunks_ + 1 : 1),
        round_(min_of(chunks_, (scan_tuning<C>::round * threads + plan.count() - 1) / plan.count())) {
    const index_t one = fold_lanes<C>::arrays * plan.width();
    folds_ = memory.take<C>(plan.count() * round_ * one);
    before_ = memory.take<C>(plan.count() * kept_ * one);
  }

  /// The sums over all keys of `earlier` come before the first chunk. It has run before this does.
  void follow(const key_prefix& earlier) { earlier_ = &earlier; }

  template <class Workspace>
  void run(int threads, const Workspace& workspace) const {
    // Without keys the sums are those of none.
    if (chunks_ == 0) parallel_for(plan_.count(), threads, [&](index_t i, int) { merge(i, 0, 0); });
    for (index_t first = 0; first < chunks_; first += round_) {
      const index_t n = min_of(round_, chunks_ - first);
      parallel_for(plan_.count() * n, threads, item_order::runs, [&](index_t item, int thread) {
        const auto [i, c] = plan_.part_of(item, n);
        fold(i, first, c, workspace(thread));
      });
      parallel_for(plan_.count(), threads, [&](index_t i, int) { merge(i, first, n); });
    }
  }

  /// The same for one column block by one thread.
  void run_column_block(index_t i, const key_workspace<C>& workspace) const {
    if (chunks_ == 0) merge(i, 0, 0);
    for (index_t c = 0; c < chunks_; ++c) {
      fold(i, c, 0, workspace);
      merge(i, c, 1);
    }
  }

  /// The sums over keys before chunk c of column block i, of causal rows; over all keys from the last chunk on.
  fold_lanes<C> before(index_t i, index_t c) const { return at(before_, i * kept_ + min_of(c, kept_ - 1)); }
  fold_lanes<C> total(index_t i) const { return before(i, chunks_); }

 private:
  /// Chunk `first` + c, as the c-th of its round.
  [[gnu::noinline]] void fold(index_t i, index_t first, index_t c, key_workspace<C> workspace) const {
    const column_block x = plan_.at(i);
    const index_t s0 = (first + c) * scan_tuning<C>::chunk;
    workspace.chunk = at(folds_, i * round_ + c);
    keys_.fold(x, s0, max_of(s0, min_of(s0 + scan_tuning<C>::chunk, keys_.end(x))), workspace, no_rows{});
  }

  /// Joins the n chunks of a round from `first` on with those before them.
  void merge(index_t i, index_t first, index_t n) const {
    const index_t width = plan_.width();
    if (first == 0 && earlier_ != nullptr) {
      std::copy_n(earlier_->total(i).base, fold_lanes<C>::arrays * width, before(i, 0).base);
      before(i, 0).leave_units(width);
    } else if (first == 0) {
      begin_sums<C>(p_, plan_.at(i), width, before(i, 0));
    }
    for (index_t c = 0; c < n; ++c) {
      const fold_lanes<C> sum = before(i, first + c + 1);
      if (kept_ > 1) std::copy_n(before(i, first + c).base, fold_lanes<C>::arrays * width, sum.base);
      merge_folds<C>(sum, at(folds_, i * round_ + c), key_scan<C>::padded(plan_.at(i)));
    }
  }

  fold_lanes<C> at(C* from, index_t i) const {
    return {from + i * fold_lanes<C>::arrays * plan_.width(), plan_.width()};
  }

  const problem& p_;
  const scan_plan<C>& plan_;
  const key_scan<C>& keys_;
  index_t chunks_;
  index_t kept_;   ///< sums over the keys before a chunk that are wanted: of rows that are not causal only all
  index_t round_;  ///< chunks that are folded before they are joined
  C* folds_ = nullptr;
  C* before_ = nullptr;
  const key_prefix* earlier_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
