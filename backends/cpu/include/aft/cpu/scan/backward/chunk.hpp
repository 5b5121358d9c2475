// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/chunk.hpp  One chunk of the backward scan: its rows again, their sums, its keys' gradients.
#pragma once

#include "key_gradients.hpp"
#include "rows.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// The buffers of one thread of a backward call.
template <class C>
struct backward_workspace : key_workspace<C> {
  reverse_lanes<C> sums, after;
  reverse_view<C> ahead;
  row_workspace<C> rows;
  C* dk = nullptr;
  C* dv = nullptr;
  C* kept = nullptr;  ///< o, inverse, power, base of a chunk's rows, or of one row

  static index_t size(index_t width, index_t kept_rows) {
    return key_workspace<C>::size(width) + row_workspace<C>::size(width) +
           width * (2 * reverse_lanes<C>::arrays + reverse_view<C>::arrays + 2 * scan_tuning<C>::rows + 4 * kept_rows);
  }

  backward_workspace(C* at, index_t width)
      : key_workspace<C>(at, width), rows(at + key_workspace<C>::size(width), width) {
    at += key_workspace<C>::size(width) + row_workspace<C>::size(width);
    C *sums_at, *after_at;
    at = cut_arrays(at, reverse_lanes<C>::arrays * width, {&sums_at, &after_at});
    sums = {sums_at, width};
    after = {after_at, width};
    ahead = {at, width};
    kept = cut_arrays(at + reverse_view<C>::arrays * width, scan_tuning<C>::rows * width, {&dk, &dv});
  }
};

template <class C>
class backward_pass {
 public:
  backward_pass(const backward_problem& p, const scan_plan<C>& plan)
      : given_(p.lse.set && p.average.set),
        sums_wanted_(p.dk.set || p.dv.set),
        p_(p),
        plan_(plan),
        policy_(cache_policy::of_backward(p, plan)),
        keys_(p, plan, policy_.uncached_keys, p.dk.set || p.dq.set),
        rows_(p, policy_, given_, p.dk.set || p.dq.set, sums_wanted_),
        v_(p.v, p.d, 1),
        dk_(p.dk, p.d, p.d / p.hk),
        dv_(p.dv, p.d, 1) {}

  const key_scan<C>& keys() const { return keys_; }

  /// For a scan_plan, in files that have 16-bit data.
  static const narrow_entries* narrow() {
    using keys = key_scan<C>;
    static constexpr narrow_entries all =
        narrow_entries_of<C, typename keys::template narrow_fold<no_rows>,
                          typename keys::template narrow_fold<row_keeper>, typename gradient_rows<C>::narrow_rows,
                          narrow_causal, narrow_keys>();
    return &all;
  }

  /// False where lse and average must be computed again.
  bool given() const { return given_; }
  bool sums_wanted() const { return sums_wanted_; }

  /// The rows of chunk c of a causal column block from the fold of the keys before it, which workspace.before holds.
  known_rows<C> again(const column_block& x, index_t c, const backward_workspace<C>& workspace) const {
    constexpr index_t chunk = scan_tuning<C>::chunk;
    const index_t t0 = c * chunk;
    const index_t t1 = min_of(t0 + chunk, p_.Tq);
    const index_t s1 = max_of(t0, min_of(t1, keys_.end(x)));
    known_rows<C> rows = kept(workspace, chunk, t0, plan_.width());
    // Named, since nvcc 13 writes a list inside a loop's head back as something that is no C++.
    const panel<C> parts[] = {rows.o, rows.inverse, rows.power, rows.base};
    const auto row_at = [&](index_t t) {
      const index_t r = t - t0;
      return scan_rows<C>{
          {rows.o.row(r), 0}, {}, {rows.inverse.row(r), 0}, {rows.power.row(r), 0}, {rows.base.row(r), 0}};
    };
    const auto spread = [&](index_t first, index_t end) {
      for (index_t t = first + 1; t < end; ++t)
        for (const panel<C>& part : parts) std::copy_n(part.row(first - t0), plan_.width(), part.row(t - t0));
    };
    if (t0 < s1) {
      keys_.fold(x, t0, s1, workspace, row_keeper{&rows});
      keys_.rows_after_chunk(x, t0, s1, t1, workspace, [&](index_t t, index_t end) {
        keys_.row_after_chunk(x, workspace, row_at(t));
        spread(t, end);
      });
      keys_.advance(x, workspace);
    } else if (s1 < t1) {
      keys_.last_row(x, workspace, row_at(s1));
      spread(s1, t1);
    }
    for (index_t t = t0; t < t1; ++t) rows.rebased = rows.rebased || some_base(rows.base.row(t - t0), x);
    return rows;
  }

  /// What all queries see that are not causal: given, or from workspace.before.
  known_rows<C> same(const column_block& x, const backward_workspace<C>& workspace) const {
    known_rows<C> rows = kept(workspace, 1, 0, 0);
    if (given_) {
      plan_.for_segments(x,
                         [&](const segment& part) { rows_.read_shared(part, workspace.rows, workspace.zeros, rows); });
    } else {
      keys_.last_row(x, workspace, {rows.o, {}, rows.inverse, rows.power, rows.base});
    }
    rows.rebased = some_base(rows.base.data, x);
    rows.same = !rows.rebased && !some_empty(rows.inverse.data, x);
    return rows;
  }

  /// workspace.sums = the rows of chunk c. With Emit also the gradients of its keys, from these and workspace.after.
  template <bool Emit>
  void chunk(const column_block& x, index_t c, const backward_workspace<C>& workspace, const known_rows<C>& known,
             bool write_dq) const {
    const index_t t0 = c * scan_tuning<C>::chunk;
    const index_t t1 = min_of(t0 + scan_tuning<C>::chunk, p_.Tq);
    const index_t s1 = Emit ? max_of(t0, min_of(t1, keys_.end(x))) : t0;
    reverse_job<C> job{workspace.sums, workspace.after, workspace.ahead, {}, {}};
    bool same = false;
    if (sums_wanted_) {
      job.chunk.clear(keys_.padded(x));
      plan_.for_segments(
          x, [&](const segment& part) { rows_.find_centre(part, t0, t1, workspace.rows, known, job.chunk.centre); });
      if (rows_.same(known))
        same = enter_uniform_references<C>(job.chunk, job.view, rows_.shared(known), keys_.padded(x));
      start<Emit>(x, job);
    }
    index_t begin = s1;
    if (same) {
      const index_t n = (t1 - s1) / scan_tuning<C>::rows * scan_tuning<C>::rows;
      plan_.for_segments(x, [&](const segment& part) {
        rows_.add_uniform(part, s1, n, workspace.rows, known, write_dq, job, plan_.narrow());
      });
      begin += n;
    }
    panels(begin, t1, [&](index_t t, index_t n) {
      plan_.for_segments(x, [&](const segment& part) {
        job.rows = rows_.read(part, t, n, workspace.rows, known, workspace.zeros, write_dq);
        if (!p_.causal) job.rows = job.rows.reversed(n);
        if (sums_wanted_) reverse_panel<C, false>(job, part, n);
      });
    });
    if constexpr (Emit) {
      // Rows without keys may have moved the references.
      for (index_t l = 0; l < keys_.padded(x); l += lanes<C>)
        update_reverse_view<C, true>(job.chunk, job.after, job.view, l);
      downwards(t0, s1, [&](index_t t, index_t n) {
        plan_.for_segments(x, [&](const segment& part) {
          const bool whole = n == scan_tuning<C>::rows && rows_.causal_sums(known);
          if (whole &&
              try_narrow_rows(plan_.narrow(), narrow_causal{this, &part, t, &workspace, &known, write_dq, &job}))
            return;
          job.keys = open(part, t, n, workspace);
          if (whole) {
            rows_.add_causal(part, t, workspace.rows, known, workspace.zeros, write_dq, job);
          } else {
            job.rows = rows_.read(part, t, n, workspace.rows, known, workspace.zeros, write_dq);
            reverse_panel<C, true>(job, part, n);
          }
          close(part, t, n, job.keys);
        });
      });
    }
  }

  /// Gradients of keys [s0, s1) that all rows see; workspace.after has the sums of the rows.
  void key_gradients(const column_block& x, index_t s0, index_t s1, const backward_workspace<C>& workspace) const {
    if (s0 >= s1) return;  // keys may have no memory then
    reverse_job<C> job{workspace.sums, workspace.after, workspace.ahead, {}, {}};
    job.chunk.clear(keys_.padded(x));
    start<true>(x, job);
    for (index_t l = 0; l < keys_.padded(x); l += lanes<C>) find_key_limits<C>(job.view, l);
    plan_.for_segments(x, [&](const segment& part) {
      constexpr index_t many = scan_tuning<C>::rows, few = scan_tuning<C>::uncached_rows;
      if (try_narrow_rows(plan_.narrow(), narrow_keys{this, &part, s0, s1, &job.view})) return;
      const bool whole = lies_as<C>(part);
      // Staged, two rows at a time take 1.04 times as long as four (134 MB, Zen 5, 2026-11).
      const index_t rows = panel_rows<C>(policy_.uncached_key_grads && whole);
      const auto emit_panel = [&](const reverse_keys<C>& keys, index_t n) {
        rows == few ? emit_keys<C, few>(job.view, keys, part, n) : emit_keys<C, many>(job.view, keys, part, n);
      };
      for_panels(
          s0, s1, rows, whole, [&](index_t s, index_t n) { return open(part, s, n, workspace); }, emit_panel,
          [&](index_t s, index_t n, const reverse_keys<C>& keys) { close(part, s, n, keys); });
    });
  }

  /// Keys from s0 on that no row sees.
  void no_gradients(const column_block& x, index_t s0, const backward_workspace<C>& workspace) const {
    if (s0 >= p_.Tk || p_.afar.added) return;
    plan_.for_segments(x, [&](const segment& part) {
      if (dk_.set()) dk_.write(part, s0, p_.Tk - s0, {workspace.zeros, 0});
      if (dv_.set()) dv_.write(part, s0, p_.Tk - s0, {workspace.zeros, 0});
    });
  }

  void advance(const column_block& x, const backward_workspace<C>& workspace) const {
    merge_reverse<C>(workspace.after, workspace.sums, keys_.padded(x));
  }

 private:
  /// Takes the rows of a forward fold into a chunk's buffers.
  struct row_keeper {
    static constexpr emission what = emission::any;
    static constexpr narrow_loop loop = narrow_loop::kept_rows;
    const known_rows<C>* rows;
    scan_rows<C> open(const segment& x, index_t t, index_t) const { return rows_as<C>(x, t); }
    void close(const segment&, index_t, index_t) const {}
    bool in_place(const segment&) const { return true; }
    template <class T>
    bool lies_as(const segment&) const {
      return true;
    }
    template <class T>
    scan_rows<C, T> rows_as(const segment& x, index_t t) const {
      const auto at = [&](const panel<C>& to) { return panel<C>{to.row(t - rows->t0) + x.lane, to.stride}; };
      return {at(rows->o), {}, at(rows->inverse), at(rows->power), at(rows->base)};
    }
  };

  /// A whole panel of causal rows and their keys.
  struct narrow_causal {
    static constexpr narrow_loop loop = narrow_loop::causal_gradients;
    const backward_pass* pass;
    const segment* x;
    index_t t;
    const backward_workspace<C>* workspace;
    const known_rows<C>* known;
    bool write_dq;
    reverse_job<C>* job;

    template <class T>
    bool run() const {
      if (!pass->template lies_as<T>(*x) || !pass->rows_.template lies_as<T>(*x, write_dq)) return false;
      pass->rows_.add_causal_as(*x, t, workspace->rows, *known, workspace->zeros, write_dq,
                                pass->template lying<T>(*x, t), *job);
      return true;
    }
  };
  struct narrow_keys {
    static constexpr narrow_loop loop = narrow_loop::key_gradients;
    const backward_pass* pass;
    const segment* x;
    index_t s0, s1;
    const reverse_view<C>* view;

    template <class T>
    bool run() const {
      if (!pass->template lies_as<T>(*x)) return false;
      emit_keys<C, scan_tuning<C>::rows>(*view, pass->template lying<T>(*x, s0), *x, s1 - s0);
      return true;
    }
  };

  known_rows<C> kept(const backward_workspace<C>& workspace, index_t rows, index_t t0, index_t stride) const {
    const index_t one = rows * plan_.width();
    C* const at = workspace.kept;
    return {{at, stride}, {at + one, stride}, {at + 2 * one, stride}, {at + 3 * one, stride}, t0, false};
  }

  bool some_base(const C* base, const column_block& x) const {
    const vec<C> zero(C(0));
    auto some = differs<C>(zero, zero);
    for (index_t l = 0; l < keys_.padded(x); l += lanes<C>) some = some | (differs<C>(load(base + l), zero));
    return xsimd::any(some);
  }

  bool some_empty(const C* inverse, const column_block& x) const {
    const vec<C> zero(C(0));
    for (index_t l = 0; l < keys_.padded(x); l += lanes<C>)
      if (xsimd::any(load(inverse + l) == zero)) return true;
    return false;
  }

  template <bool Emit>
  void start(const column_block& x, const reverse_job<C>& job) const {
    for (index_t l = 0; l < keys_.padded(x); l += lanes<C>)
      update_reverse_view<C, Emit>(job.chunk, job.after, job.view, l);
  }

  /// Panels of rows in the order in which their sums grow, as they do within a panel: only where rows see different
  /// keys has it to be from the last to the first.
  template <class F>
  void panels(index_t t0, index_t t1, const F& f) const {
    if (p_.causal) return downwards(t0, t1, f);
    for (index_t t = t0; t < t1; t += scan_tuning<C>::rows) f(t, min_of(scan_tuning<C>::rows, t1 - t));
  }

  /// Panels of [t0, t1) from the last to the first, cut at multiples of their height.
  template <class F>
  static void downwards(index_t t0, index_t t1, const F& f) {
    constexpr index_t rows = scan_tuning<C>::rows;
    for (index_t end = t1; end > t0;) {
      const index_t begin = max_of(t0, (end - 1) / rows * rows);
      f(begin, end - begin);
      end = begin;
    }
  }

  /// Whether keys, values and their gradients are read and written where they lie, as T.
  template <class T>
  bool lies_as(const segment& x) const {
    const auto lies = [&](const columns<C>& of) { return of.template lies_as<T>(x); };
    return keys_.template lies_as<T>(x) && (!dk_.set() || (lies(v_) && lies(dk_))) && (!dv_.set() || lies(dv_));
  }
  /// Those from key s on.
  template <class T>
  reverse_keys<C, T> lying(const segment& x, index_t s) const {
    reverse_keys<C, T> out;
    out.uncached = policy_.uncached_key_grads;
    out.k = keys_.template in_place<T>(x, s);
    if (dk_.set()) {
      out.v = v_.template in_place<T>(x, s);
      out.dk = dk_.template in_place<T>(x, s);
    }
    if (dv_.set()) out.dv = dv_.template in_place<T>(x, s);
    return out;
  }

  [[gnu::noinline]] reverse_keys<C> open(const segment& x, index_t s, index_t n,
                                         const backward_workspace<C>& workspace) const {
    reverse_keys<C> out;
    out.uncached = policy_.uncached_key_grads;
    out.added = p_.afar.added;
    out.k = keys_.read_keys(x, s, n, workspace.keys);
    if (dk_.set()) {
      out.v = v_.read(x, s, n, workspace.values);
      out.dk = dk_.open(x, s, workspace.dk);
      if (out.added) dk_.load_open(x, s, n, out.dk);
      out.dk_streamed = policy_.keys_streamed && dk_.direct(x) && on_lines(out.dk);
    }
    if (dv_.set()) {
      out.dv = dv_.open(x, s, workspace.dv);
      if (out.added) dv_.load_open(x, s, n, out.dv);
      out.dv_streamed = policy_.keys_streamed && dv_.direct(x) && on_lines(out.dv);
    }
    return out;
  }

  [[gnu::noinline]] void close(const segment& x, index_t s, index_t n, const reverse_keys<C>& from) const {
    if (dk_.set()) {
      if (p_.hk == p_.d) {
        dk_.close(x, s, n, from.dk);
      } else {
        dk_.write_group_sums(x, s, n, from.dk);
      }
    }
    if (dv_.set()) dv_.close(x, s, n, from.dv);
  }

  bool given_;
  bool sums_wanted_;
  const backward_problem& p_;
  const scan_plan<C>& plan_;
  cache_policy policy_;
  key_scan<C> keys_;
  gradient_rows<C> rows_;
  columns<C> v_, dk_, dv_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
