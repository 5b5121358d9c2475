// SPDX-License-Identifier: Apache-2.0
/// @file launch/bias_gradient.cuh  The launches that give the gradient of a bias, whatever it is stored as.
#pragma once

#include "../bias_gradient/sums.cuh"
#include "../plan/expand.cuh"
#include "pair_gradient.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

template <class C>
class bias_backward {
 public:
  bias_backward(const backward_problem& p, device_scratch& memory)
      : p_(&p), width_(width_of(p)), pairs_(p, rows_wanted(p, width_), memory) {
    const bias_ref& d = p.dbias;
    if (d.kind == bias_kind::factorized) {
      if (d.u.set) memory.reserve(du_, d.u_heads * p.Tq * d.rank);
      if (d.v.set) memory.reserve(dv_, d.v_heads * p.Tk * d.rank);
      expands_ = rows_at_once<C>(p.bias.heads, width_, p.Tq, tuning::pairs) > 0;
      if (expands_) memory.reserve_shared(weights_, p.bias.heads * pairs_.rows() * width_);
    } else if (d.kind == bias_kind::filter) {
      memory.reserve(dr_, p.bias.heads * width_);
    } else {
      return;
    }
    memory.reserve(dw_, p.bias.heads * pairs_.rows() * width_);
  }
  bias_backward(const bias_backward&) = delete;
  bias_backward& operator=(const bias_backward&) = delete;

  /// `call` has g, and average and state or lse.
  void run(const device_call<C>& call, const call_stream& stream) const {
    pairs_.prepare(call, stream);
    switch (p_->dbias.kind) {
      case bias_kind::none:
      case bias_kind::generated:
      case bias_kind::sparse: break;
      case bias_kind::dense:
      case bias_kind::banded: return run_pairs(call, stream);
      case bias_kind::factorized: return run_factors(call, stream);
      case bias_kind::filter: return run_taps(call, stream);
    }
  }

 private:
  /// Of a row of dw in scratch; 0 where dw goes to the caller's memory.
  static index_t width_of(const backward_problem& p) {
    if (p.dbias.kind == bias_kind::factorized) return expanded_width(p);
    return p.dbias.kind == bias_kind::filter ? p.taps[0] * p.taps[1] * p.taps[2] : 0;
  }
  static index_t rows_wanted(const backward_problem& p, index_t width) {
    return rows_at_once<C>(p.bias.heads, width, p.Tq, tuning::pairs);
  }
  index_t end_of(index_t r0) const { return min_of(r0 + pairs_.rows(), p_->Tq); }
  pair_plan<C> plan(index_t r0) const {
    pair_plan<C> a = pairs_.tiles(r0, end_of(r0));
    a.scratch = dw_;
    a.width = width_;
    return a;
  }

  void run_pairs(const device_call<C>& call, const call_stream& stream) const {
    const backward_problem& p = *p_;
    const bias_ref& d = p.dbias;
    const bool banded = d.kind == bias_kind::banded;
    if (d.batch == 0) return;  // a bias for every element of an empty batch has no entry to write
    if (p.win.bounded) {
      // dw outside the window, and of banded entries without a key, is exactly 0.
      const index_t width = banded ? p.win.before + p.win.after + 1 : p.Tk;
      stream.launch_each(clear_kernel<C>, d.batch * d.heads * p.Tq * width, clear_threads, d.w, d.batch, d.heads, p.Tq,
                         width);
    }
    for (index_t r0 = 0; r0 < p.Tq; r0 += pairs_.rows()) {
      pair_plan<C> a = plan(r0);
      a.banded = banded;
      a.out = d.w;
      pairs_.run(call, a, stream);
    }
  }

  void run_factors(const device_call<C>& call, const call_stream& stream) const {
    const backward_problem& p = *p_;
    const bias_ref& d = p.dbias;
    const index_t H = p.bias.heads;
    const bool banded = expands_band(p);
    if (d.u.set) stream.clear(du_, d.u_heads * p.Tq * d.rank);
    if (d.v.set) stream.clear(dv_, d.v_heads * p.Tk * d.rank);
    for (index_t r0 = 0; r0 < p.Tq && p.Tk > 0; r0 += pairs_.rows()) {
      const index_t r1 = end_of(r0);
      device_call<C> part = call;
      if (expands_) {
        const expand_plan<C> expansion = banded ? plan_band(call.bias, r0, r1, p.Tk, width_, weights_)
                                                : plan_expansion(call.bias, r0, r1, 0, p.Tk, weights_);
        stream.launch(expand_kernel<C>, expansion.blocks(), expand_threads, expansion);
        part.bias = expanded(call.bias, expansion);
      }
      pair_plan<C> a = plan(r0);
      a.banded = banded;
      if (a.limited) stream.clear(dw_, H * (r1 - r0) * width_);
      pairs_.run(part, a, stream);
      factor_sums<C> sums{dw_, H, r0, r1, 0, p.Tk, width_, d.rank};
      sums.banded = banded;
      sums.before = p.win.before;
      if (banded) {
        sums.s0 = clamp_to(r0 - p.win.before, p.Tk);
        sums.s1 = clamp_to(r1 + p.win.after, p.Tk);
        if (sums.s1 < sums.s0) sums.s1 = sums.s0;  // an empty window
      }
      if (d.u.set) {
        sums.to(p.bias.v, du_, d.u_heads, p.Tq);
        stream.launch_each(factor_gradient_kernel<false, C>, d.u_heads * (r1 - r0) * d.rank, factor_threads, sums);
      }
      if (d.v.set) {
        sums.to(p.bias.u, dv_, d.v_heads, p.Tk);
        stream.launch_each(factor_gradient_kernel<true, C>, d.v_heads * (sums.s1 - sums.s0) * d.rank, factor_threads,
                           sums);
      }
    }
    if (d.u.set) store_sums(stream, d.u, du_, d.u_heads, p.Tq);
    if (d.v.set) store_sums(stream, d.v, dv_, d.v_heads, p.Tk);
  }

  void store_sums(const call_stream& stream, const matrix& m, const C* sums, index_t heads, index_t rows) const {
    const index_t rank = p_->dbias.rank;
    stream.launch_each(store_sums_kernel<C>, heads * rows * rank, factor_threads, m, sums, heads, rows, rank);
  }

  void run_taps(const device_call<C>& call, const call_stream& stream) const {
    if (width_ == 0) return;  // no tap, and no scratch to sum in
    const backward_problem& p = *p_;
    const index_t H = p.bias.heads;
    stream.clear(dr_, H * width_);
    for (index_t r0 = 0; r0 < p.Tq; r0 += pairs_.rows()) {
      const index_t r1 = end_of(r0);
      stream.clear(dw_, H * (r1 - r0) * width_);
      pairs_.run(call, plan(r0), stream);
      stream.launch(tap_gradient_kernel<C>, H * width_, tap_threads, dw_, r1 - r0, width_, dr_);
    }
    problem gradient = p;
    gradient.bias = p.dbias;
    stream.launch_each(store_taps_kernel<C>, H * width_, factor_threads, to_bias(gradient), dr_);
  }

  const backward_problem* p_;
  index_t width_;
  pair_backward<C> pairs_;
  bool expands_ = false;
  C* du_ = nullptr;
  C* dv_ = nullptr;
  C* dr_ = nullptr;
  C* dw_ = nullptr;
  C* weights_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
