// SPDX-License-Identifier: Apache-2.0
/// @file products.hpp  Products on translated PTX: whether all elements were proven, and are within the bounds that
/// docs/cuda.md derives for them.
#pragma once

namespace aft::test {

/// One bfloat16 product for each pair, by mma.sync, compiled for sm_80, and by wgmma, for sm_90a.
bool gemm_right_on_warps();
bool gemm_right_on_warpgroups();
/// Float products of split operands, by TF32 numbers and by halves.
bool split_product_right();

}  // namespace aft::test
