// SPDX-License-Identifier: Apache-2.0
/// @file launch/sparse_backward.cuh  The launches that give the gradients of k, v and the values of a sparse filter.
#pragma once

#include "../sparse/keys.cuh"
#include "../sparse/values.cuh"
#include "shared_keys.cuh"
#include "sparse.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// dk, dv and dvalues. O(B (Tq + Tk + taps Tq) d), and O(Tq) for a flagged key.
template <class C>
class sparse_backward {
 public:
  sparse_backward(const backward_problem& p, bool keys_wanted, device_scratch& memory)
      : keys_wanted_(keys_wanted), start_(sparse_start_of(p)), taps_(p, memory), shared_(p, memory) {
    if (p.dbias.r_set) {
      problem own = p;
      own.bias = p.dbias;
      out_ = to_bias(own);
      plan_values(p, memory);
    }
    if (!keys_wanted) return;
    const bool carries = start_ == sparse_start::prefix;
    queries_ = plan_scan<query_sum<C>>(p.B, p.d, carries ? p.first_query + p.Tq : p.Tq);
    if (carries) queries_.diagonal = p.first_query;
    keys_ = plan_scan<query_sum<C>>(p.B, p.d, p.Tk);
    if (start_ != sparse_start::nothing) memory.reserve(queries_.partials, queries_.chunks * queries_.cols.count());
    rows_ = plan_fold(keys_.cols, 0, p.Tk);
    memory.reserve(rows_.flags, rows_.flag_words());
  }
  sparse_backward(const sparse_backward&) = delete;
  sparse_backward& operator=(const sparse_backward&) = delete;

  /// `call` has g, and average and state or lse.
  void run(const device_call<C>& call, const call_stream& stream) const {
    taps_.prepare(stream);
    if (keys_wanted_) run_keys(call, stream);
    if (out_.r != nullptr) run_values(call, stream);
  }

 private:
  /// A thread has some pairs at least, and all parts of all taps have their scratch. Part of a result's bits, so of
  /// nothing but the shape.
  void plan_values(const backward_problem& p, device_scratch& memory) {
    constexpr index_t pairs_of_thread = 32, most = 64;
    const index_t taps = p.bias.heads * p.bias.taps.count;
    values_.pairs = p.B * p.Tq * (p.d / p.bias.heads);
    const index_t room = max_of(tuning::block_bytes / (max_of(taps, 1) * static_cast<index_t>(sizeof(C))), 1);
    const index_t wanted = ceil_div(values_.pairs, value_threads * pairs_of_thread);
    values_.slices = min_of(max_of(wanted, 1), min_of(most, room));
    memory.reserve(values_.sums, taps * values_.slices);
  }

  void run_keys(const device_call<C>& call, const call_stream& stream) const {
    const device_call<C> own = shared_.per_channel(call);
    if (start_ != sparse_start::nothing) {
      stream.launch(scan_queries_of(own), queries_.blocks(), scan_threads, own, queries_);
      run_plan runs = plan_runs(queries_.cols.count(), queries_.chunks, run_warps<query_sum<C>>);
      runs.forwards = false;
      stream.launch(scan_reverse_kernel<C>, runs.blocks(), runs.threads(), runs, queries_.partials, own.causal);
    }
    // The last words of the last tile belong to no row.
    stream.clear(rows_.flags, rows_.flag_words());
    stream.launch(sparse_keys_kernel<C>, keys_.blocks(), scan_threads, own, queries_, keys_, start_, taps_.table(),
                  rows_);
    launch_exact(stream, sparse_exact_keys_kernel<C>, rows_, own, taps_.table());
    shared_.sum(call, stream);
  }

  void run_values(const device_call<C>& call, const call_stream& stream) const {
    const tap_table<C> table = taps_.table();
    const index_t taps = table.heads * table.count;
    stream.launch(sparse_values_kernel<C>, taps * values_.slices, value_threads, call, table, values_);
    stream.launch_each(store_values_kernel<C>, taps, tap_table_threads, out_, table, values_);
  }

  bool keys_wanted_;
  sparse_start start_;
  sparse_taps<C> taps_;
  shared_keys<C> shared_;
  scan_plan<query_sum<C>> queries_{}, keys_{};
  fold_plan rows_{};
  device_bias out_{};
  value_plan<C> values_{};
};

}  // namespace aft::inline AFT_ISA::cuda_impl
