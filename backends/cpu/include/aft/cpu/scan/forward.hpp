// SPDX-License-Identifier: Apache-2.0
/// @file scan/forward.hpp  AFT-simple (AFT Eq. 5) as a scan: y[t] = gate(q[t]) sum_s e^k[s] v[s] / sum_s e^k[s].
#pragma once

#include <optional>

#include "../math/gates.hpp"
#include "../runtime/parallel.hpp"
#include "../runtime/workspace.hpp"
#include "keys.hpp"
#include "split.hpp"

namespace aft::inline AFT_ISA::cpu_impl {
namespace scan {

/// The buffers of one thread of a forward call.
template <class C>
struct forward_workspace : key_workspace<C> {
  C *q, *y, *average, *lse, *num, *den;

  static index_t size(index_t width) { return key_workspace<C>::size(width) + (4 * scan_tuning<C>::rows + 2) * width; }

  forward_workspace(C* at, index_t width) : key_workspace<C>(at, width) {
    C* const rows = at + key_workspace<C>::size(width);
    cut_arrays(cut_arrays(rows, scan_tuning<C>::rows * width, {&q, &y, &average, &lse}), width, {&num, &den});
  }
};

template <class C>
class forward_pass {
 public:
  forward_pass(const problem& p, const scan_plan<C>& plan)
      : p_(p),
        plan_(plan),
        policy_(cache_policy::of_forward(p, plan)),
        keys_(p, plan, policy_.uncached_keys),
        q_(p.q, p.d, 1),
        y_(p.y, p.d, 1),
        average_(p.average, p.d, 1),
        lse_(p.lse, p.d, p.d / p.hk) {}

  const key_scan<C>& keys() const { return keys_; }

  /// For a scan_plan, in files that have 16-bit data.
  static const narrow_entries* narrow() {
    using keys = key_scan<C>;
    static constexpr narrow_entries all =
        narrow_entries_of<C, typename keys::template narrow_fold<no_rows>,
                          typename keys::template narrow_fold<row_writer<emission::gated>>,
                          typename keys::template narrow_fold<row_writer<emission::any>>, narrow_gates>();
    return &all;
  }

  /// Rows and keys of chunk c of a causal column block, after the keys of workspace.before, which then holds this
  /// chunk's too.
  AFT_COMPILE_ONCE void causal_chunk(const column_block& x, index_t c, const forward_workspace<C>& workspace) const {
    const index_t t0 = c * scan_tuning<C>::chunk;
    const index_t t1 = min_of(t0 + scan_tuning<C>::chunk, p_.Tq);
    const index_t s1 = max_of(t0, min_of(t1, keys_.end(x)));
    if (t0 < s1) {
      if (fused() && !average_.set() && !lse_.set()) {
        keys_.fold(x, t0, s1, workspace, row_writer<emission::gated>{this, &workspace});
      } else {
        keys_.fold(x, t0, s1, workspace, row_writer<emission::any>{this, &workspace});
      }
      keys_.rows_after_chunk(x, t0, s1, t1, workspace, [&](index_t t, index_t end) {
        keys_.row_after_chunk(x, workspace, uniform_sums(workspace));
        spread_row(x, t, end, workspace);
      });
      keys_.advance(x, workspace);
    } else if (s1 < t1) {
      uniform_rows(x, s1, t1, workspace);
    }
  }

  /// Rows [t0, t1), which all see the keys of workspace.before.
  AFT_COMPILE_ONCE void uniform_rows(const column_block& x, index_t t0, index_t t1,
                                     const forward_workspace<C>& workspace) const {
    keys_.last_row(x, workspace, uniform_sums(workspace));
    spread_row(x, t0, t1, workspace);
  }

 private:
  /// Where the sums of a row are kept that several rows share.
  scan_rows<C> uniform_sums(const forward_workspace<C>& workspace) const {
    scan_rows<C> sums;
    sums.average = {workspace.average, 0};
    sums.num = {workspace.num, 0};
    sums.den = {workspace.den, 0};
    if (lse_.set()) sums.lse = {workspace.lse, 0};
    return sums;
  }

  /// Rows [t0, t1) from these.
  AFT_COMPILE_ONCE void spread_row(const column_block& x, index_t t0, index_t t1,
                                   const forward_workspace<C>& workspace) const {
    plan_.for_segments(x, [&](const segment& part) {
      const panel<C> average{workspace.average + part.lane, 0};
      if (fused()) {
        gate_uniform_rows(part, t0, t1, average, workspace);
      } else {
        constexpr index_t rows = scan_tuning<C>::rows;
        for (index_t t = t0; t < t1; t += rows) write_y(part, t, min_of(rows, t1 - t), average, workspace);
      }
      if (average_.set()) average_.write(part, t0, t1 - t0, average);
      if (lse_.set()) lse_.write(part, t0, t1 - t0, {workspace.lse + part.lane, 0});
    });
  }

  /// Takes the results of a panel of rows to the outputs.
  template <emission What>
  struct row_writer {
    static constexpr emission what = What;
    static constexpr narrow_loop loop = What == emission::gated ? narrow_loop::gated_rows : narrow_loop::any_rows;
    const forward_pass* pass;
    const forward_workspace<C>* workspace;

    scan_rows<C> open(const segment& x, index_t t, index_t n) const {
      scan_rows<C> out;
      if (pass->fused()) pass->open_y(x, t, n, *workspace, out);
      if (pass->average_wanted()) out.average = average(x, t);
      if (pass->lse_.set()) out.lse = pass->lse_.open(x, t, workspace->lse);
      return out;
    }
    void close(const segment& x, index_t t, index_t n) const {
      if (pass->fused()) {
        pass->y_.close(x, t, n, {workspace->y, x.width});
      } else {
        pass->write_y(x, t, n, average(x, t), *workspace);
      }
      if (pass->average_.set()) pass->average_.close(x, t, n, average(x, t));
      if (pass->lse_.set()) pass->lse_.close(x, t, n, {workspace->lse, x.width});
    }
    /// Whether open() gives any number of rows.
    bool in_place(const segment& x) const { return What == emission::gated && pass->in_place(x); }
    template <class T>
    bool lies_as(const segment& x) const {
      const auto lies = [&](const columns<C>& saved) { return !saved.set() || saved.direct(x); };
      return pass->fused() && pass->template lies_as<T>(x) && lies(pass->average_) && lies(pass->lse_);
    }
    template <class T>
    scan_rows<C, T> rows_as(const segment& x, index_t t) const {
      scan_rows<C, T> out = pass->template rows_as<T>(x, t);
      if (pass->average_.set()) out.average = pass->average_.in_place(x, t);
      if (pass->lse_.set()) out.lse = pass->lse_.in_place(x, t);
      return out;
    }
    panel<C> average(const segment& x, index_t t) const {
      return pass->average_.set() ? pass->average_.open(x, t, workspace->average)
                                  : panel<C>{workspace->average, x.width};
    }
  };

  /// The default gate joins the division of the average; others are a pass of their own over a panel.
  bool fused() const { return p_.gate_fn == gate::sigmoid; }
  bool average_wanted() const { return !fused() || average_.set(); }
  bool in_place(const segment& x) const { return lies_as<C>(x); }
  template <class T>
  bool lies_as(const segment& x) const {
    return q_.template lies_as<T>(x) && y_.template lies_as<T>(x);
  }
  /// q and y from row t on, where they lie.
  template <class T>
  scan_rows<C, T> rows_as(const segment& x, index_t t) const {
    scan_rows<C, T> out;
    out.q = q_.template in_place<T>(x, t);
    out.y = y_.template in_place<T>(x, t);
    out.prefetched = policy_.prefetched;
    return out;
  }

  void open_y(const segment& x, index_t t, index_t n, const forward_workspace<C>& workspace, scan_rows<C>& out,
              bool row_by_row = false) const {
    out.q = q_.read(x, t, n, workspace.q);
    out.y = y_.open(x, t, workspace.y);
    out.streamed = policy_.streamed && y_.direct(x) && on_lines(out.y, row_by_row);
    out.prefetched = policy_.prefetched && !out.streamed;
  }

  /// y of rows [t0, t1) that have one average, or one num and den in the workspace.
  void gate_uniform_rows(const segment& x, index_t t0, index_t t1, const panel<C>& average,
                         const forward_workspace<C>& workspace) const {
    const index_t rows = panel_rows<C>(policy_.uncached_rows);
    const auto open = [&](index_t t, index_t n) {
      scan_rows<C> out;
      open_y(x, t, n, workspace, out, true);
      return out;
    };
    if (try_narrow_rows(plan_.narrow(), narrow_gates{this, &x, t0, t1, &average, &workspace})) return;
    for_panels(
        t0, t1, rows, in_place(x), open,
        [&](const scan_rows<C>& out, index_t n) { gate_rows(out, x, n, average, workspace); },
        [&](index_t t, index_t n, const scan_rows<C>& out) { y_.close(x, t, n, out.y); });
  }
  template <class T>
  void gate_rows(const scan_rows<C, T>& out, const segment& x, index_t n, const panel<C>& average,
                 const forward_workspace<C>& workspace) const {
    const index_t rows = panel_rows<C>(policy_.uncached_rows);
    if (p_.causal) {
      quotient_rows<true>(out, x.width, n, rows, workspace.num + x.lane, workspace.den + x.lane);
    } else {
      quotient_rows<false>(out, x.width, n, rows, average.data, nullptr);
    }
  }
  struct narrow_gates {
    static constexpr narrow_loop loop = narrow_loop::gates;
    const forward_pass* pass;
    const segment* x;
    index_t t0, t1;
    const panel<C>* average;
    const forward_workspace<C>* workspace;

    template <class T>
    bool run() const {
      if (!pass->template lies_as<T>(*x)) return false;
      pass->gate_rows(pass->template rows_as<T>(*x, t0), *x, t1 - t0, *average, *workspace);
      return true;
    }
  };

  /// n rows that see the same keys, asked for as panels of so many. Causal ones may also pass through the fold, whose
  /// formula they then share; others need no more than their average.
  template <bool Causal, class T>
  [[gnu::flatten, gnu::noinline]] static void quotient_rows(const scan_rows<C, T>& to, index_t width, index_t n,
                                                            index_t rows, const C* num, const C* den) {
    constexpr index_t few = 4;
    const prefetch_lines<C> ahead_q(to.q, 1, rows), ahead_y(to.y, 1, rows);
    const panel<T> from = to.q, out = to.y;
    const vec<C> near_q(near_gate<C>), zero(C(0)), one(C(1));
    const bool prefetched = to.prefetched, streamed = to.streamed;
    for (index_t r = 0; r < n; ++r) {
      const T* const q = from.row(r);
      T* const y = out.row(r);
      line_walk next_q = ahead_q.along(r, 0), next_y = ahead_y.along(r, 0);
      const auto epilogue = [&](index_t i, const vec<C>& exp_minus) __attribute__((always_inline)) {
        if constexpr (Causal) {
          put_row<C>(y + i, any_exp_minus_quotient<C>(load(num + i), load(den + i), exp_minus), streamed);
        } else {
          put_row<C>(y + i, load(num + i) / (one + exp_minus), streamed);
        }
      };
      index_t i = 0;
      for (; i + few * lanes<C> <= width; i += few * lanes<C>) {
        vec<C> size = zero, queries[few];
        AFT_UNROLL(4)
        for (index_t j = 0; j < few; ++j) {
          next_q.prefetch_into();
          if (prefetched) next_y.prefetch_writes();
          queries[j] = load_as<C>(q + i + j * lanes<C>);
          size = larger_size<C>(size, queries[j]);
        }
        if (xsimd::all(size <= near_q)) {
          AFT_UNROLL(4)
          for (index_t j = 0; j < few; ++j) epilogue(i + j * lanes<C>, exp_near<C, true>(queries[j], zero));
        } else {
          for (index_t j = 0; j < few; ++j) epilogue(i + j * lanes<C>, quotient_exp_minus<C>(queries[j]));
        }
      }
      for (; i < width; i += lanes<C>) epilogue(i, quotient_exp_minus<C>(load_as<C>(q + i)));
    }
  }

  AFT_COMPILE_ONCE void write_y(const segment& x, index_t t, index_t n, const panel<C>& average,
                                const forward_workspace<C>& workspace) const {
    const panel<C> q = p_.gate_fn == gate::none ? panel<C>{workspace.zeros, 0} : q_.read(x, t, n, workspace.q);
    const panel<C> y = y_.open(x, t, workspace.y);
    for (index_t r = 0; r < n; ++r) gate_row(p_.gate_fn, x.width, q.row(r), average.row(r), y.row(r));
    y_.close(x, t, n, y);
  }

  [[gnu::flatten]] static void gate_row(gate g, index_t width, const C* q, const C* average, C* y) {
    for (index_t i = 0; i < width; i += lanes<C>) store(y + i, gate_value<C>(g, load(q + i)) * load(average + i));
  }

  const problem& p_;
  const scan_plan<C>& plan_;
  cache_policy policy_;
  key_scan<C> keys_;
  columns<C> q_, y_, average_, lse_;
};

}  // namespace scan

/// Rows of p that also see all keys of `first`, if there is one: of a call that was cut.
template <class C>
void scan_forward(const problem& p, const problem* first, const cpu& exec, const scan::narrow_entries* narrow) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  const index_t work = p.B * p.d * (p.Tq + p.Tk);
  const int threads = work < scan_tuning<C>::serial ? 1 : thread_count(exec);
  const scan::scan_plan<C> plan(p, threads, narrow);
  const scan::forward_pass<C> pass(p, plan);
  std::optional<scan::key_scan<C>> earlier;
  if (first != nullptr) earlier.emplace(*first, plan, scan::cache_policy::of_forward(*first, plan).uncached_keys);
  const index_t row_chunks = scan::key_scan<C>::chunks(p.Tq);
  const bool whole = plan.whole(threads, p.causal);
  const int team = static_cast<int>(
      min_of(threads, plan.count() * (whole ? 1 : max_of(row_chunks, scan::key_scan<C>::chunks(p.Tk)))));

  scratch memory(exec);
  const index_t size = scan::forward_workspace<C>::size(plan.width());
  per_thread<C> workspaces;
  std::optional<scan::key_prefix<C>> prefix, earlier_prefix;
  const auto lay_out = [&](scratch& from) {
    workspaces = from.take_each<C>(size, team);
    if (whole) return;
    prefix.emplace(p, plan, pass.keys(), team, from);
    if (earlier) prefix->follow(earlier_prefix.emplace(*first, plan, *earlier, team, from));
  };
  memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  if (is_trial(exec)) return;
  const auto workspace = [&](int thread) { return scan::forward_workspace<C>(workspaces.of(thread), plan.width()); };
  if (whole) {
    parallel_for(plan.count(), team, item_order::runs, [&](index_t i, int thread) {
      const scan::forward_workspace<C> mine = workspace(thread);
      scan::begin_sums<C>(p, plan.at(i), plan.width(), mine.before);
      if (earlier) {
        earlier->fold_all(plan.at(i), mine);
        mine.before.leave_units(plan.width());
      }
      if (p.causal) {
        for (index_t c = 0; c < row_chunks; ++c) pass.causal_chunk(plan.at(i), c, mine);
      } else {
        pass.keys().fold_all(plan.at(i), mine);
        pass.uniform_rows(plan.at(i), 0, p.Tq, mine);
      }
      fence_stores();
    });
    return;
  }
  if (earlier_prefix) earlier_prefix->run(team, workspace);
  prefix->run(team, workspace);
  parallel_for(plan.count() * row_chunks, team, item_order::runs, [&](index_t n, int thread) {
    const auto [i, c] = plan.part_of(n, row_chunks);
    const scan::forward_workspace<C> mine = workspace(thread);
    const scan::fold_lanes<C> sums = p.causal ? prefix->before(i, c) : prefix->total(i);
    std::copy_n(sums.base, scan::fold_lanes<C>::arrays * plan.width(), mine.before.base);
    if (p.causal) {
      pass.causal_chunk(plan.at(i), c, mine);
    } else {
      const index_t t0 = c * scan_tuning<C>::chunk;
      pass.uniform_rows(plan.at(i), t0, min_of(t0 + scan_tuning<C>::chunk, p.Tq), mine);
    }
    fence_stores();
  });
}

/// A problem in which every visible pair has bias 0 and no mask depends on the query.
template <class C>
void scan_forward(const problem& p, const cpu& exec, const scan::narrow_entries* narrow) {
  if (!p.causal || p.first_query == 0) return scan_forward<C>(p, nullptr, exec, narrow);
  const problem first = scan::earlier_keys(p, p.first_query);
  scan_forward<C>(scan::later_keys(p, p.first_query), &first, exec, narrow);
}

}  // namespace aft::inline AFT_ISA::cpu_impl
