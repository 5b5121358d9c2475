// SPDX-License-Identifier: Apache-2.0
/// @file plan/row_parts.cuh  The rows of a forward call, in parts whose share of a factorized bias fits the scratch.
#pragma once

#include "../fold/exact.cuh"
#include "expand.cuh"
#include "flagged.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// All rows of a problem, in parts whose share of a factorized bias fits the scratch.
template <class C>
class row_parts {
 public:
  row_parts(const problem& p, device_scratch& memory)
      : cols_(columns_of(p)), step_(p.Tq), width_(expanded_width(p)), banded_(expands_band(p)) {
    if (p.bias.kind == bias_kind::factorized) {
      step_ = rows_at_once<C>(p.bias.heads, width_, p.Tq, fold_rows);
      if (step_ > 0) memory.reserve_shared(weights_, p.bias.heads * step_ * width_);
      expands_ = step_ > 0;
      if (!expands_) step_ = p.Tq;
    }
    memory.reserve(flags_, plan_fold(cols_, 0, step_).flag_words());
  }
  // The scratch remembers where its pointers go.
  row_parts(const row_parts&) = delete;
  row_parts& operator=(const row_parts&) = delete;

  /// Sums each part with sum(call, plan), and what that has flagged by definition.
  template <class F>
  void run(const device_call<C>& call, const call_stream& stream, const F& sum) const {
    for (index_t r0 = 0; r0 < call.Tq; r0 += step_) {
      device_call<C> part = call;
      fold_plan plan = plan_fold(cols_, r0, min_of(r0 + step_, call.Tq));
      plan.flags = flags_;
      if (expands_) {
        const expand_plan<C> expansion = banded_ ? plan_band(call.bias, plan.r0, plan.r1, call.Tk, width_, weights_)
                                                 : plan_expansion(call.bias, plan.r0, plan.r1, 0, call.Tk, weights_);
        stream.launch(expand_kernel<C>, expansion.blocks(), expand_threads, expansion);
        part.bias = expanded(call.bias, expansion);
      }
      sum(part, plan);
      launch_exact(stream, exact_kernel<C>, plan, part);
    }
  }

 private:
  columns cols_;
  index_t step_ = 0, width_ = 0;
  bool banded_ = false, expands_ = false;
  C* weights_ = nullptr;
  std::uint32_t* flags_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
