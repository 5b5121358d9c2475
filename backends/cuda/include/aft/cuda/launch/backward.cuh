// SPDX-License-Identifier: Apache-2.0
/// @file launch/backward.cuh  The launches of a backward call.
#pragma once

#include <optional>

#include "../fold/keys.cuh"
#include "../scan/gate_gradient.cuh"
#include "../split_mma/keys.cuh"
#include "bf16_gemm_keys.cuh"
#include "bias_gradient.cuh"
#include "forward.cuh"
#include "sparse_backward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The matrix product for parts of the keys, where tensor cores serve the call.
template <class C>
class key_product {
 public:
  key_product(const backward_problem& p, device_scratch& memory)
      : gemm_(p, memory),
        chosen_(sizeof(C) == sizeof(float) && !gemm_.chosen() && is_product(p) &&
                (product_forced() || p.Tq >= tuning::product_keys)),
        halves_(p.k.type != dtype::f32) {
    if (!chosen_) return;
    queries_ = plan_pack(columns_of(p), p.Tq);
    memory.reserve(queries_.tiles, queries_.count());
  }
  key_product(const key_product&) = delete;
  key_product& operator=(const key_product&) = delete;

  bool chosen() const { return chosen_ || gemm_.chosen(); }
  /// Of a block.
  int rows() const { return gemm_.chosen() ? gemm_rows : (chosen_ ? product_rows : fold_rows); }
  void pack(const device_call<float>& call, const call_stream& stream) const {
    if (gemm_.chosen()) return gemm_.pack(call, stream);
    const auto kernel = halves_ ? &pack_queries_kernel<half_operand> : &pack_queries_kernel<tf32_operand>;
    stream.launch(kernel, ceil_div(queries_.count(), pack_warps), pack_threads, call, queries_, queries_.count());
  }
  /// Flags what fold_keys has to sum again.
  void sum(const device_call<float>& part, const fold_plan& plan, const uniform_sums<query_sum<float>>& uniform,
           const call_stream& stream) const {
    if (gemm_.chosen()) return gemm_.sum(part, plan, uniform, stream);
    const product_plan product = plan_product(plan, queries_);
    const auto kernel = halves_ ? &key_product_kernel<half_operand> : &key_product_kernel<tf32_operand>;
    stream.launch(kernel, product.blocks(), product_threads, part, product, uniform);
  }

 private:
  gemm_keys<C> gemm_;
  bool chosen_, halves_;
  pack_plan queries_{};
};

/// dk and dv of any problem, pair by pair or as a matrix product. O(B Tq Tk d), with windows like the forward pass.
template <class C>
class key_backward {
 public:
  key_backward(const backward_problem& p, device_scratch& memory)
      : cols_(columns_of(p)),
        shared_(p, memory),
        product_(p, memory),
        uniform_(p, p.Tq, sums_uniform(p, product_.rows(), p.Tq), !p.causal, true, memory) {
    step_ = p.Tk;
    if (p.bias.kind == bias_kind::factorized && !plan_bands(p, memory)) {
      step_ = rows_at_once<C>(p.bias.heads, p.Tq, p.Tk, fold_rows);
      expands_ = step_ > 0;
      if (!expands_) step_ = p.Tk;
      if (expands_) memory.reserve_shared(weights_, p.bias.heads * step_ * p.Tq);
    }
    if (product_.chosen() || uniform_.folds().used) memory.reserve(flags_, plan_fold(cols_, 0, step_).flag_words());
  }
  key_backward(const key_backward&) = delete;
  key_backward& operator=(const key_backward&) = delete;

  void run(const device_call<C>& call, const call_stream& stream) const {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (product_.chosen()) product_.pack(call, stream);
    }
    uniform_.run(scan_queries_of(call), call, stream);
    for (index_t r0 = 0; r0 < call.Tk; r0 += step_) {
      device_call<C> part = shared_.per_channel(call);
      fold_plan plan = plan_fold(cols_, r0, min_of(r0 + step_, call.Tk));
      if (expands_) {
        const expand_plan<C> expansion = banded_ ? band_of(call, plan.r0, plan.r1)
                                                 : plan_expansion(call.bias, 0, call.Tq, plan.r0, plan.r1, weights_);
        stream.launch(expand_kernel<C>, expansion.blocks(), expand_threads, expansion);
        part.bias = expanded(call.bias, expansion);
      }
      plan.flags = flags_;
      if constexpr (sizeof(C) == sizeof(float)) {
        if (product_.chosen()) {
          product_.sum(part, plan, uniform_.folds(), stream);
          plan = only_flagged(plan);
        }
      }
      const index_t blocks = plan.only_flagged ? plan.launched : plan.blocks();
      stream.launch(fold_keys_kernel<C>, blocks, fold_threads, part, plan, uniform_.folds());
      if (!uniform_.folds().used) continue;
      plan = only_flagged(plan);
      stream.launch(fold_keys_kernel<C>, plan.launched, fold_threads, part, plan, uniform_sums<query_sum<C>>{});
    }
    shared_.sum(call, stream);
  }

 private:
  /// Whether the bias is expanded as bands of rows: of those whose windows reach a part's keys, where that is not much
  /// more than the part.
  bool plan_bands(const backward_problem& p, device_scratch& memory) {
    if (!expands_band(p)) return false;
    width_ = expanded_width(p);
    // Windows that lie far from their queries reach no more rows than others.
    const index_t beyond = p.win.before + p.win.after;
    index_t rows = rows_at_once<C>(p.bias.heads, width_, p.Tq, 1);
    if (rows < p.Tq) {
      if (rows < 2 * beyond + fold_rows) return false;
      step_ = (rows - beyond) / fold_rows * fold_rows;
    }
    banded_ = expands_ = true;
    memory.reserve_shared(weights_, p.bias.heads * rows * width_);
    return true;
  }
  expand_plan<C> band_of(const device_call<C>& call, index_t s0, index_t s1) const {
    const index_t lo = clamp_to(s0 - call.bias.after, call.Tq), hi = clamp_to(s1 + call.bias.before, call.Tq);
    return plan_band(call.bias, lo, hi, call.Tk, width_, weights_);
  }

  columns cols_;
  shared_keys<C> shared_;
  key_product<C> product_;
  uniform_scan<query_sum<C>> uniform_;
  index_t step_ = 0, width_ = 0;
  bool banded_ = false, expands_ = false;
  C* weights_ = nullptr;
  std::uint32_t* flags_ = nullptr;
};

/// dk and dv where no pair has a weight of its own. O(B T d).
template <class C>
class scan_key_backward {
 public:
  scan_key_backward(const backward_problem& p, device_scratch& memory)
      : queries_(plan_scan<query_sum<C>>(p.B, p.d, p.causal ? p.first_query + p.Tq : p.Tq)),
        keys_(plan_scan<query_sum<C>>(p.B, p.d, p.Tk)),
        rows_(plan_fold(keys_.cols, 0, p.Tk)),
        shared_(p, memory) {
    queries_.diagonal = p.causal ? p.first_query : 0;
    memory.reserve(queries_.partials, queries_.chunks * queries_.cols.count());
    memory.reserve(rows_.flags, rows_.flag_words());
  }
  scan_key_backward(const scan_key_backward&) = delete;
  scan_key_backward& operator=(const scan_key_backward&) = delete;

  void run(const device_call<C>& call, const call_stream& stream) const {
    const device_call<C> own = shared_.per_channel(call);
    stream.launch(scan_queries_of(own), queries_.blocks(), scan_threads, own, queries_);
    run_plan runs = plan_runs(queries_.cols.count(), queries_.chunks, run_warps<query_sum<C>>);
    runs.forwards = false;
    stream.launch(scan_reverse_kernel<C>, runs.blocks(), runs.threads(), runs, queries_.partials, own.causal);
    // The last words of the last tile belong to no row.
    stream.clear(rows_.flags, rows_.flag_words());
    const auto kernel = by_access<C>({&own.k, &own.v, &own.dk, &own.dv}, {&own.lse, &own.average},
                                     [](auto access) { return &scan_key_rows_kernel<C, decltype(access)>; });
    stream.launch(kernel, keys_.blocks(), scan_threads, own, queries_, keys_, rows_);
    launch_exact(stream, exact_keys_kernel<C>, rows_, own);
    shared_.sum(call, stream);
  }

 private:
  scan_plan<query_sum<C>> queries_, keys_;
  fold_plan rows_;
  shared_keys<C> shared_;
};

/// lse and average from the caller serve where they are enough; otherwise both are computed again, in scratch.
template <class C>
void backward(const backward_problem& p, const call_stream& stream, device_room* room = nullptr) {
  device_scratch memory(stream, room);
  device_call<C> call = to_call<C>(p);
  call.dy = to_tensor(p.dy, call.positions);
  call.dq = to_tensor(p.dq, call.positions);
  call.dk = to_tensor(p.dk, call.positions);
  call.dv = to_tensor(p.dv, call.positions);
  // A key channel that serves several heads has one lse but several sums, so that lse does not suffice.
  call.from_lse = p.lse.set && p.average.set && call.state_channels == p.hk;
  memory.reserve(call.g, p.B * p.Tq * p.d);
  C* average = nullptr;
  std::optional<any_forward<C>> recomputed;
  if (!call.from_lse) {
    const index_t rows = p.B * p.Tq * call.state_channels;
    memory.reserve(average, p.B * p.Tq * p.d);
    memory.reserve(call.state.inverse, rows);
    memory.reserve(call.state.exponent, rows);
    memory.reserve(call.state.base_hi, rows);
    memory.reserve(call.state.base_lo, rows);
    recomputed.emplace(p, memory, true);
  }
  const bool keys_wanted = (p.dk.set || p.dv.set) && p.B > 0 && p.Tk > 0 && p.d > 0;
  std::optional<key_backward<C>> keys;
  std::optional<scan_key_backward<C>> scanned_keys;
  std::optional<sparse_backward<C>> sparse;
  if (p.bias.kind == bias_kind::sparse) {
    sparse.emplace(p, keys_wanted, memory);
  } else if (keys_wanted && is_scan(p)) {
    scanned_keys.emplace(p, memory);
  } else if (keys_wanted) {
    keys.emplace(p, memory);
  }
  std::optional<bias_backward<C>> bias;
  if (p.dbias.kind != bias_kind::none && !sparse) bias.emplace(p, memory);
  if (!memory.allocate()) return;

  if (recomputed && p.B > 0 && p.Tq > 0 && p.d > 0) {
    call.average = scratch_tensor(average, call.positions, p.d);
    recomputed->call().y = recomputed->call().lse = tensor{};
    recomputed->call().average = call.average;
    recomputed->call().state = call.state;
    recomputed->run(stream);
  }
  const auto queries = plan_scan<C>(p.B, p.d, p.Tq);
  const auto kernel = by_access<C>({&call.dy, &call.q, &call.dq}, {&call.lse, &call.average},
                                   [](auto access) { return &gate_gradient_kernel<C, decltype(access)>; });
  stream.launch(kernel, queries.blocks(), scan_threads, call, queries);
  if (keys) keys->run(call, stream);
  if (scanned_keys) scanned_keys->run(call, stream);
  if (sparse) sparse->run(call, stream);
  if (bias) bias->run(call, stream);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
