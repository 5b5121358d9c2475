// SPDX-License-Identifier: Apache-2.0
/// @file launch/sparse.cuh  The launches of a forward call with a sparse filter.
#pragma once

#include "../plan/flagged.cuh"
#include "../plan/to_call.cuh"
#include "../sparse/rows.cuh"
#include "access.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The taps of a call, made ready in scratch by a launch of their own.
template <class C>
class sparse_taps {
 public:
  sparse_taps(const problem& p, device_scratch& memory) {
    const tap_list& all = p.bias.taps;
    source_ = {all, p.bias.r, p.bias.r_type, p.bias.r_sh, p.bias.r_sj[2], p.causal};
    table_.heads = p.bias.heads;
    table_.count = all.count;
    table_.queries = table_.keys = to_grid(p.grid);
    // The grid is that of the queries; keys in one row may be of another number.
    if (p.grid[0] == 1 && p.grid[1] == 1) table_.keys.n2 = p.Tk;
    memory.reserve(taps_, table_.heads * table_.count);
  }
  sparse_taps(const sparse_taps&) = delete;
  sparse_taps& operator=(const sparse_taps&) = delete;

  tap_table<C> table() const {
    tap_table<C> own = table_;
    own.taps = taps_;
    return own;
  }
  void prepare(const call_stream& stream) const {
    stream.launch_each(tap_table_kernel<C>, table_.heads * table_.count, tap_table_threads, source_, table_, taps_);
  }

 private:
  tap_source source_{};
  tap_table<C> table_{};
  device_tap<C>* taps_ = nullptr;
};

/// What the rows of a call with a sparse filter, and its keys, begin with.
inline sparse_start sparse_start_of(const problem& p) {
  if (p.excluded || has_pair_mask(p)) return sparse_start::nothing;
  return p.causal ? sparse_start::prefix : sparse_start::total;
}

/// Folds the keys once, and those that taps read once more. O(B (Tq + Tk + taps Tq) d), and O(Tk) for a flagged row.
template <class C>
class sparse_forward {
 public:
  sparse_forward(const problem& p, device_scratch& memory)
      : call(to_call<C>(p)),
        start_(sparse_start_of(p)),
        taps_(p, memory),
        queries_(plan_scan<key_sum<C>>(p.B, p.d, p.Tq)) {
    // Up to the last row's own key: it counts where there are fewer keys, too.
    const bool carries = start_ == sparse_start::prefix;
    keys_ = plan_scan<key_sum<C>>(p.B, p.d, carries ? call.diagonal + p.Tq : p.Tk);
    if (carries) keys_.diagonal = call.diagonal;
    if (start_ != sparse_start::nothing) memory.reserve(keys_.partials, keys_.chunks * keys_.cols.count());
    if (start_ == sparse_start::total) memory.reserve(totals_, keys_.cols.count());
    rows_ = plan_fold(keys_.cols, 0, p.Tq);
    memory.reserve(rows_.flags, rows_.flag_words());
  }
  sparse_forward(const sparse_forward&) = delete;
  sparse_forward& operator=(const sparse_forward&) = delete;

  void run(const call_stream& stream) const {
    taps_.prepare(stream);
    if (start_ != sparse_start::nothing) stream.launch(scan_chunks_of(call), keys_.blocks(), scan_threads, call, keys_);
    if (start_ == sparse_start::prefix) {
      const run_plan runs = plan_runs(keys_.cols.count(), keys_.chunks, run_warps<key_sum<C>>);
      stream.launch(scan_prefix_kernel<C>, runs.blocks(), runs.threads(), runs, keys_.partials);
    } else if (start_ == sparse_start::total) {
      const run_plan runs = plan_runs(keys_.cols.count(), keys_.chunks, tuning::wide_run_warps);
      stream.launch(sparse_total_kernel<C>, runs.blocks(), runs.threads(), runs, keys_, totals_);
    }
    // The last words of the last tile belong to no row.
    stream.clear(rows_.flags, rows_.flag_words());
    const scan_plan<key_sum<C>>& own = start_ == sparse_start::prefix ? keys_ : queries_;
    stream.launch(sparse_rows_kernel<C>, own.blocks(), scan_threads, call, own, start_, totals_, taps_.table(), rows_);
    launch_exact(stream, sparse_exact_kernel<C>, rows_, call, taps_.table());
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  sparse_start start_;
  sparse_taps<C> taps_;
  scan_plan<key_sum<C>> keys_{}, queries_;
  fold_plan rows_{};
  key_sum<C>* totals_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
