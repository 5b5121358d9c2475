// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/call.hpp  Gradients of AFT-simple: the scan with time reversed, keys and queries exchanged.
#pragma once

#include <optional>

#include "../../runtime/parallel.hpp"
#include "../../runtime/workspace.hpp"
#include "../split.hpp"
#include "chunk.hpp"
#include "far_sums.hpp"

namespace aft::inline AFT_ISA::cpu_impl {
namespace scan {

/// The gradients of a whole call. Chunks are folded and joined the same way however many threads there are.
template <class C>
class backward_call {
 public:
  /// `first`: of a call that was cut, the part on the keys that all rows see besides; else null.
  backward_call(const backward_problem& p, const backward_problem* first, const cpu& exec, scratch& memory,
                const narrow_entries* narrow)
      : p_(p),
        threads_(p.B * p.d * (p.Tq + p.Tk) < scan_tuning<C>::serial ? 1 : thread_count(exec)),
        plan_(p, threads_, narrow),
        pass_(p, plan_),
        first_(first),
        row_chunks_(key_scan<C>::chunks(p.Tq)) {
    if (first != nullptr) earlier_.emplace(*first, plan_);
    const index_t key_chunks = key_scan<C>::chunks(p.Tk);
    whole_ = plan_.whole(threads_, p.causal);
    const index_t tasks = plan_.count() * max_of(1, max_of(row_chunks_, key_chunks));
    threads_ = static_cast<int>(min_of(threads_, tasks));
    const index_t workspace_size =
        backward_workspace<C>::size(plan_.width(), !p.causal ? 1 : (pass_.given() ? 0 : scan_tuning<C>::chunk));
    const auto lay_out = [&](scratch& from) {
      workspaces_ = from.take_each<C>(workspace_size, threads_);
      if (!pass_.given()) prefix_.emplace(p, plan_, pass_.keys(), threads_, from);
      if (!pass_.given() && earlier_)
        prefix_->follow(earlier_prefix_.emplace(*first_, plan_, earlier_->keys(), threads_, from));
      if (!pass_.sums_wanted() || whole_) return;
      sums_ = from.take<C>(plan_.count() * row_chunks_ * sums_size());
      after_ = from.take<C>(plan_.count() * kept() * sums_size());
    };
    memory.take_at_once(function_ref<void(scratch&)>(lay_out));
  }

  void run() const {
    const auto workspaces = [&](int thread) { return workspace(thread); };
    if (prefix_ && !(pass_.sums_wanted() && whole_)) {
      if (earlier_prefix_) earlier_prefix_->run(threads_, workspaces);
      prefix_->run(threads_, workspaces);
    }
    if (!pass_.sums_wanted()) {
      each_chunk([&](index_t i, index_t c, const backward_workspace<C>& mine) {
        pass_.template chunk<false>(plan_.at(i), c, mine, known(i, c, mine), true);
        fence_stores();
      });
    } else if (whole_) {
      whole_column_blocks();
    } else {
      split_column_blocks();
    }
  }

 private:
  index_t sums_size() const { return reverse_lanes<C>::arrays * plan_.width(); }
  backward_workspace<C> workspace(int thread) const { return {workspaces_.of(thread), plan_.width()}; }
  reverse_lanes<C> sums(index_t i, index_t c) const {
    return {sums_ + (i * row_chunks_ + c) * sums_size(), plan_.width()};
  }
  /// The sums of all rows from chunk c on; those of all rows, whatever c, where no others are wanted.
  reverse_lanes<C> after(index_t i, index_t c) const {
    return {after_ + (i * kept() + min_of(c, kept() - 1)) * sums_size(), plan_.width()};
  }
  index_t kept() const { return p_.causal ? row_chunks_ + 1 : 1; }

  /// The keys that any row sees are those before it; without a row there are none, and no value counts.
  index_t seen(const column_block& x) const { return p_.Tq == 0 ? 0 : pass_.keys().end(x); }
  index_t seen_earlier(const column_block& x) const { return p_.Tq == 0 ? 0 : earlier_->keys().end(x); }

  template <class F>
  void each_chunk(const F& f) const {
    parallel_for(plan_.count() * row_chunks_, threads_, item_order::runs, [&](index_t n, int thread) {
      const auto [i, c] = plan_.part_of(n, row_chunks_);
      f(i, c, workspace(thread));
    });
  }

  known_rows<C> known(index_t i, index_t c, const backward_workspace<C>& mine) const {
    if (p_.Tq == 0 || (pass_.given() && p_.causal)) return {};
    if (pass_.given()) return pass_.same(plan_.at(i), mine);
    const fold_lanes<C> from = p_.causal ? prefix_->before(i, c) : prefix_->total(i);
    std::copy_n(from.base, fold_lanes<C>::arrays * plan_.width(), mine.before.base);
    return p_.causal ? pass_.again(plan_.at(i), c, mine) : pass_.same(plan_.at(i), mine);
  }

  void whole_column_blocks() const {
    parallel_for(plan_.count(), threads_, item_order::runs, [&](index_t i, int thread) {
      const backward_workspace<C> mine = workspace(thread);
      const column_block x = plan_.at(i);
      // k and v are read again and again, but from the caches.
      if (earlier_prefix_) earlier_prefix_->run_column_block(i, mine);
      if (prefix_) prefix_->run_column_block(i, mine);
      mine.after.clear(plan_.width());
      known_rows<C> same;
      if (!p_.causal) same = known(i, 0, mine);
      for (index_t c = row_chunks_ - 1; c >= 0; --c) {
        if (p_.causal) {
          pass_.template chunk<true>(x, c, mine, known(i, c, mine), true);
        } else {
          pass_.template chunk<false>(x, c, mine, same, true);
        }
        pass_.advance(x, mine);
      }
      end_sums(i, mine.after);
      if (!p_.causal) pass_.key_gradients(x, 0, seen(x), mine);
      pass_.no_gradients(x, seen(x), mine);
      if (earlier_) {
        earlier_->key_gradients(x, 0, seen_earlier(x), mine);
        earlier_->no_gradients(x, seen_earlier(x), mine);
      }
      fence_stores();
    });
  }

  /// `all` are the sums over all rows of a column block.
  void end_sums(index_t i, const reverse_lanes<C>& all) const {
    if (p_.afar.joins_rows() && p_.afar.slope != nullptr) end_reverse<C>(p_, plan_.at(i), all);
  }

  void split_column_blocks() const {
    // dq is written by the pass that is last to read dy and q.
    each_chunk([&](index_t i, index_t c, const backward_workspace<C>& theirs) {
      backward_workspace<C> mine = theirs;
      mine.sums = sums(i, c);
      pass_.template chunk<false>(plan_.at(i), c, mine, known(i, c, mine), !p_.causal);
      fence_stores();
    });
    parallel_for(plan_.count(), threads_, item_order::runs, [&](index_t i, int thread) {
      after(i, row_chunks_).clear(plan_.width());
      for (index_t c = row_chunks_ - 1; c >= 0; --c) {
        const reverse_lanes<C> sum = after(i, c);
        if (kept() > 1) std::copy_n(after(i, c + 1).base, sums_size(), sum.base);
        merge_reverse<C>(sum, sums(i, c), key_scan<C>::padded(plan_.at(i)));
      }
      end_sums(i, after(i, 0));
      pass_.no_gradients(plan_.at(i), seen(plan_.at(i)), workspace(thread));
      if (earlier_) earlier_->no_gradients(plan_.at(i), seen_earlier(plan_.at(i)), workspace(thread));
    });
    if (p_.causal) {
      each_chunk([&](index_t i, index_t c, const backward_workspace<C>& theirs) {
        backward_workspace<C> mine = theirs;
        mine.after = after(i, c + 1);
        pass_.template chunk<true>(plan_.at(i), c, mine, known(i, c, mine), true);
        fence_stores();
      });
    } else {
      uniform_keys(pass_, p_.Tk, [&](const column_block& x) { return seen(x); });
    }
    if (earlier_) uniform_keys(*earlier_, first_->Tk, [&](const column_block& x) { return seen_earlier(x); });
  }

  /// Gradients of keys that all rows see, from the sums of all rows.
  template <class Seen>
  void uniform_keys(const backward_pass<C>& pass, index_t count, const Seen& end_of) const {
    const index_t chunks = key_scan<C>::chunks(count);
    parallel_for(plan_.count() * chunks, threads_, item_order::runs, [&](index_t n, int thread) {
      backward_workspace<C> mine = workspace(thread);
      const auto [i, c] = plan_.part_of(n, chunks);
      const column_block x = plan_.at(i);
      mine.after = after(i, 0);
      const index_t s0 = c * scan_tuning<C>::chunk;
      pass.key_gradients(x, s0, max_of(s0, min_of(s0 + scan_tuning<C>::chunk, end_of(x))), mine);
      fence_stores();
    });
  }

  const backward_problem& p_;
  int threads_;
  scan_plan<C> plan_;
  backward_pass<C> pass_;
  const backward_problem* first_;
  std::optional<backward_pass<C>> earlier_;  ///< of `first`
  index_t row_chunks_;
  bool whole_ = false;
  per_thread<C> workspaces_;
  C* sums_ = nullptr;
  C* after_ = nullptr;
  std::optional<key_prefix<C>> prefix_, earlier_prefix_;
};

}  // namespace scan

/// Of the problems that scan_forward takes. Uses p.lse and p.average where both are set.
template <class C>
void scan_backward(const backward_problem& p, const cpu& exec, const scan::narrow_entries* narrow) {
  if (p.B == 0 || p.d == 0) return;
  scratch memory(exec);
  if (!p.causal || p.first_query == 0) {
    const scan::backward_call<C> call(p, nullptr, exec, memory, narrow);
    if (!is_trial(exec)) call.run();
    return;
  }
  const backward_problem first = scan::earlier_keys(p, p.first_query), later = scan::later_keys(p, p.first_query);
  const scan::backward_call<C> call(later, &first, exec, memory, narrow);
  if (!is_trial(exec)) call.run();
}

}  // namespace aft::inline AFT_ISA::cpu_impl
