// SPDX-License-Identifier: Apache-2.0
/// @file tuning_stencil.hpp  Sizes of the stencil, each with the measurement that chose it.
#pragma once

#include "simd.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace cpu_impl {

template <class C>
struct tuning_stencil {
  /// Outputs of a register tile, two accumulators each. 8 of 32 registers would allow 14, but 16 chains already hide
  /// the latency of fma, and wider tiles waste more at the ends of rows (Zen 5, 2026-11, GF/s of useful work for 5, 7,
  /// 8 outputs: 182, 184, 169 on 14 x 14 with 11 x 11; 162, 208, 222 on 56 x 56 with 31 x 31). With 16 registers 4.
#if defined(__AVX512F__) || defined(__ARM_NEON)
  static constexpr index_t outputs = 8;
#else
  static constexpr index_t outputs = 4;
#endif
  /// Positions that are folded, proven, gated and stored together; their staging buffers stay in the first-level cache.
  static constexpr index_t block = 56;
  /// Least channels with one key and one head for which denominators are folded apart: it saves nearly half of the
  /// multiply-adds, and costs spreading each denominator over its channels.
  static constexpr index_t tied_class = 4;
  /// Parts of the batch whose filter gradients are summed apart and then joined in order: enough of them to feed the
  /// threads, and few, since each holds a table of the filter's size. Fixed, so the bits do not depend on threads.
  static constexpr index_t batch_parts = 16;
};

}  // namespace cpu_impl
}  // namespace AFT_ISA
}  // namespace aft
