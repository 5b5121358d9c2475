// SPDX-License-Identifier: Apache-2.0
/// @file launch/forward.cuh  The launches of a forward call.
#pragma once

#include <optional>

#include "../plan/row_parts.cuh"
#include "../plan/to_call.cuh"
#include "../plan/uniform_scan.cuh"
#include "../split_mma/forward.cuh"
#include "bf16_gemm.cuh"
#include "sparse.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Folds the rows of any problem pair by pair: O(B Tq s d) for s keys in a window, of a block's rows rather than of
/// one.
template <class C>
class pair_forward {
 public:
  pair_forward(const problem& p, device_scratch& memory)
      : call(to_call<C>(p)),
        rows_(p, memory),
        uniform_(p, p.Tk, sums_uniform(p, fold_rows, p.Tk), true, !p.causal, memory) {}

  void run(const call_stream& stream) const {
    uniform_.run(scan_chunks_of(call), call, stream);
    rows_.run(call, stream, [&](const device_call<C>& part, const fold_plan& plan) {
      stream.launch(fold_kernel<C>, plan.blocks(), fold_threads, part, plan, uniform_.folds());
    });
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  row_parts<C> rows_;
  uniform_scan<key_sum<C>> uniform_;
};

/// The rows of a float problem as a matrix product on the tensor cores: the work of pair_forward, O(B Tk d) of scratch.
/// C: float.
template <class C>
class product_forward {
 public:
  product_forward(const problem& p, device_scratch& memory)
      : call(to_call<C>(p)),
        // The range of half is that of weights from half numbers, more or less: what is beyond is found and folded.
        halves_(p.k.type != dtype::f32),
        rows_(p, memory),
        uniform_(p, p.Tk, sums_uniform(p, product_rows, p.Tk), true, !p.causal, memory),
        keys_(plan_pack(columns_of(p), p.Tk)) {
    memory.reserve(keys_.tiles, keys_.count());
  }
  product_forward(const product_forward&) = delete;
  product_forward& operator=(const product_forward&) = delete;

  void run(const call_stream& stream) const {
    if (halves_) return run_with<half_operand>(stream);
    run_with<tf32_operand>(stream);
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  template <class Operand>
  void run_with(const call_stream& stream) const {
    stream.launch(pack_keys_kernel<Operand>, ceil_div(keys_.count(), pack_warps), pack_threads, call, keys_,
                  keys_.count());
    uniform_.run(scan_chunks_of(call), call, stream);
    rows_.run(call, stream, [&](const device_call<C>& part, const fold_plan& plan) {
      const product_plan product = plan_product(plan, keys_);
      stream.launch(product_kernel<Operand>, product.blocks(), product_threads, part, product, uniform_.folds());
      const fold_plan flagged = only_flagged(plan);
      stream.launch(fold_kernel<C>, flagged.launched, fold_threads, part, flagged, uniform_.folds());
    });
  }

  bool halves_;
  row_parts<C> rows_;
  uniform_scan<key_sum<C>> uniform_;
  pack_plan keys_;
};

/// No pair has a weight of its own: AFT-simple, or AFT-local with an empty window.
inline bool is_scan(const problem& p) {
  if (has_pair_mask(p) || p.bias.kind == bias_kind::filter) return false;
  if (!p.win.bounded) return p.bias.kind == bias_kind::none;
  return p.win.before + p.win.after + 1 <= 0 && !p.excluded;
}

/// Folds the keys once. O(B T d).
template <class C>
class scan_forward {
 public:
  scan_forward(const problem& p, device_scratch& memory)
      // Causal, up to the last row's own key: it counts where there are fewer keys, too.
      : call(to_call<C>(p)), scan_(plan_scan<key_sum<C>>(p.B, p.d, p.causal ? call.diagonal + p.Tq : p.Tk)) {
    memory.reserve(scan_.partials, scan_.chunks * scan_.cols.count());
    if (p.causal) {
      rows_ = plan_fold(scan_.cols, 0, p.Tq);
      memory.reserve(rows_.flags, rows_.flag_words());
    } else {
      memory.reserve(totals_, scan_.cols.count());
    }
  }
  scan_forward(const scan_forward&) = delete;
  scan_forward& operator=(const scan_forward&) = delete;

  void run(const call_stream& stream) const {
    stream.launch(scan_chunks_of(call), scan_.blocks(), scan_threads, call, scan_);
    if (call.causal) {
      // The last words of the last tile belong to no row.
      stream.clear(rows_.flags, rows_.flag_words());
      const run_plan runs = plan_runs(scan_.cols.count(), scan_.chunks, run_warps<key_sum<C>>);
      stream.launch(scan_prefix_kernel<C>, runs.blocks(), runs.threads(), runs, scan_.partials);
      const auto kernel = by_access<C>({&call.k, &call.v, &call.q, &call.y}, {&call.lse, &call.average},
                                       [](auto access) { return &scan_rows_kernel<C, decltype(access)>; });
      stream.launch(kernel, scan_.blocks(), scan_threads, call, scan_, rows_);
      launch_exact(stream, exact_kernel<C>, rows_, call);
    } else {
      const run_plan runs = plan_runs(scan_.cols.count(), scan_.chunks, tuning::wide_run_warps);
      stream.launch(scan_total_kernel<C>, runs.blocks(), runs.threads(), call, runs, scan_, totals_);
      const auto queries = plan_scan<key_sum<C>>(call.B, call.d, call.Tq);
      const auto kernel = by_access<C>({&call.q, &call.y}, {&call.lse, &call.average},
                                       [](auto access) { return &scan_spread_kernel<C, decltype(access)>; });
      stream.launch(kernel, queries.blocks(), scan_threads, call, queries, totals_);
    }
  }

  device_call<C> call;  ///< may be changed until run()

 private:
  scan_plan<key_sum<C>> scan_;
  fold_plan rows_{};
  row_result<C>* totals_ = nullptr;
};

/// A forward call by the algorithm that suits it. A faster engine for some problems is one more member here. `exact`:
/// the caller wants more than results in the type of the data.
template <class C>
class any_forward {
 public:
  any_forward(const problem& p, device_scratch& memory, [[maybe_unused]] bool exact) {
    if (p.bias.kind == bias_kind::sparse) {
      sparse_.emplace(p, memory);
      return;
    }
    if (is_scan(p)) {
      scan_.emplace(p, memory);
      return;
    }
    if constexpr (sizeof(C) == sizeof(float)) {
      if (!exact && is_gemm(p)) {
        gemm_.emplace(p, memory);
        return;
      }
      if (is_product(p)) {
        product_.emplace(p, memory);
        return;
      }
    }
    pairs_.emplace(p, memory);
  }

  device_call<C>& call() {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (product_) return product_->call;
      if (gemm_) return gemm_->call;
    }
    if (sparse_) return sparse_->call;
    return scan_ ? scan_->call : pairs_->call;
  }
  void run(const call_stream& stream) const {
    if (sparse_) return sparse_->run(stream);
    if (scan_) return scan_->run(stream);
    if constexpr (sizeof(C) == sizeof(float)) {
      if (product_) return product_->run(stream);
      if (gemm_) return gemm_->run(stream);
    }
    pairs_->run(stream);
  }

 private:
  std::optional<sparse_forward<C>> sparse_;
  std::optional<scan_forward<C>> scan_;
  std::optional<product_forward<C>> product_;
  std::optional<gemm_forward<C>> gemm_;
  std::optional<pair_forward<C>> pairs_;
};

template <class C>
void forward(const problem& p, const call_stream& stream, device_room* room = nullptr) {
  if (p.B == 0 || p.Tq == 0 || p.d == 0) return;
  device_scratch memory(stream, room);
  any_forward<C> job(p, memory, false);
  if (memory.allocate()) job.run(stream);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
