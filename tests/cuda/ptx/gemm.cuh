// SPDX-License-Identifier: Apache-2.0
/// @file gemm.cuh  The bfloat16 product on either of its kernels, for the file that is compiled for its architecture.
///
/// Kernels of matrix products are looked at by themselves, since a call would have what they flag done again: a fault
/// that makes a kernel flag too much would not be seen.
#pragma once

#include <aft/cuda/launch/bf16_gemm.cuh>

#include <cuda/kernels/gemm_inputs.hpp>

namespace aft::test {

inline bool all_proven(const gemm_verdict& all, long double largest) {
  return all.flagged == 0 && all.worst <= largest;
}

template <class Engine>
bool gemm_right() {
  // More tiles of keys than there are stages, a part of one, and channels that fill no tile. Units of rows differ where
  // logits are larger.
  for (bool causal : {false, true}) {
    inputs x = gemm_inputs(3, 1, 150, 600, 20, causal ? 3 : 1);
    x.causal = causal;
    if (!all_proven(judge_gemm(x, run_gemm<Engine>(x)), gemm_bound(x))) return false;
  }
  return true;
}

}  // namespace aft::test
