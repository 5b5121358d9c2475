// SPDX-License-Identifier: Apache-2.0
/// @file backward.cuh  The launches of a backward call.
#pragma once

#include <optional>

#include "bias_backward.cuh"
#include "fold_keys.cuh"
#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// dk and dv of any problem, pair by pair. O(B Tq Tk d).
template <class C>
class key_backward {
 public:
  key_backward(const backward_problem& p, device_scratch& memory) : p_(&p), cols_(columns_of(p)) {
    step_ = p.Tk;
    if (p.bias.kind == bias_kind::factorized) {
      step_ = rows_at_once<C>(p.bias.heads, p.Tq, p.Tk, fold_rows);
      expands_ = step_ > 0;
      if (!expands_) step_ = p.Tk;
      if (expands_) memory.reserve(weights_, p.bias.heads * step_ * p.Tq);
    }
    if (p.dk.set && p.hk != p.d) memory.reserve(per_channel_, p.B * p.Tk * p.d);
  }
  key_backward(const key_backward&) = delete;
  key_backward& operator=(const key_backward&) = delete;

  void run(const device_call<C>& call, const call_stream& stream) const {
    for (index_t r0 = 0; r0 < call.Tk; r0 += step_) {
      device_call<C> part = call;
      if (per_channel_ != nullptr) part.dk = scratch_tensor(per_channel_, key_positions(), call.d);
      const fold_plan plan = plan_fold(cols_, r0, r0 + step_ < call.Tk ? r0 + step_ : call.Tk);
      if (expands_) {
        const expand_plan<C> expansion = plan_expansion(call.bias, 0, call.Tq, plan.r0, plan.r1, weights_);
        stream.launch(expand_kernel<C>, expansion.blocks(), expand_threads, expansion);
        part.bias = expanded(call.bias, expansion);
      }
      stream.launch(fold_keys_kernel<C>, plan.blocks(), fold_threads, part, plan);
    }
    if (per_channel_ != nullptr) {
      stream.launch_each(sum_shared_keys_kernel<C>, call.B * call.Tk * call.hk, shared_key_threads, call, per_channel_);
    }
  }

 private:
  /// The grid of the keys; queries may be of another number.
  grid key_positions() const {
    grid g = to_grid(p_->grid);
    if (g.n0 == 1 && g.n1 == 1) g.n2 = p_->Tk;
    return g;
  }

  const backward_problem* p_;
  columns cols_;
  index_t step_ = 0;
  bool expands_ = false;
  C* weights_ = nullptr;
  C* per_channel_ = nullptr;
};

/// lse and average from the caller serve where they are enough; otherwise both are computed again, in scratch.
template <class C>
void backward(const backward_problem& p, const call_stream& stream) {
  device_scratch memory(stream);
  device_call<C> call = to_call<C>(p);
  call.dy = to_tensor(p.dy);
  call.dq = to_tensor(p.dq);
  call.dk = to_tensor(p.dk);
  call.dv = to_tensor(p.dv);
  // A key channel that serves several heads has one lse but several sums, so that lse does not suffice.
  call.from_lse = p.lse.set && p.average.set && call.state_channels == p.hk;
  memory.reserve(call.g, p.B * p.Tq * p.d);
  C* average = nullptr;
  std::optional<any_forward<C>> again;
  if (!call.from_lse) {
    const index_t rows = p.B * p.Tq * call.state_channels;
    memory.reserve(average, p.B * p.Tq * p.d);
    memory.reserve(call.state.inverse, rows);
    memory.reserve(call.state.exponent, rows);
    memory.reserve(call.state.base_hi, rows);
    memory.reserve(call.state.base_lo, rows);
    again.emplace(p, memory);
  }
  const bool keys_wanted = (p.dk.set || p.dv.set) && p.B > 0 && p.Tk > 0 && p.d > 0;
  std::optional<key_backward<C>> keys;
  if (keys_wanted) keys.emplace(p, memory);
  std::optional<bias_backward<C>> bias;
  if (p.dbias.kind != bias_kind::none) bias.emplace(p, memory);
  memory.allocate();

  if (again && p.B > 0 && p.Tq > 0 && p.d > 0) {
    call.average = scratch_tensor(average, call.positions, p.d);
    again->call().y = again->call().lse = tensor{};
    again->call().average = call.average;
    again->call().state = call.state;
    again->run(stream);
  }
  stream.launch_each(gate_gradient_kernel<C>, p.B * p.Tq * p.d, gate_threads, call);
  if (keys) keys->run(call, stream);
  if (bias) bias->run(call, stream);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
