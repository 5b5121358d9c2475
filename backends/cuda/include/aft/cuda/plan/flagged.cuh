// SPDX-License-Identifier: Apache-2.0
/// @file plan/flagged.cuh  The launches that sum flagged rows again: as many blocks as keep a device busy, at most.
#pragma once

#include "../device/runtime.cuh"
#include "../fold/flags.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// For a fold: of `plan` only what is flagged.
inline fold_plan only_flagged(fold_plan plan) {
  plan.only_flagged = true;
  plan.launched = min_of(ceil_div(plan.blocks(), tiles_at_once), multiprocessors() * tuning::flag_blocks);
  return plan;
}

/// Launches `kernel(arguments..., plan)`, which has a thread for each flag that is set.
template <class... P, class... A>
void launch_exact(const call_stream& stream, void (*kernel)(P...), fold_plan plan, const A&... arguments) {
  plan.launched = min_of(ceil_div(plan.flag_words(), exact_threads), multiprocessors() * tuning::flag_blocks);
  stream.launch(kernel, plan.launched, exact_threads, arguments..., plan);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
