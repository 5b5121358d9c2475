// SPDX-License-Identifier: Apache-2.0
/// @file scan/tuning.hpp  Sizes and thresholds of the scan, each with the measurement that chose it.
#pragma once

#include "../runtime/parallel.hpp"
#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
struct scan_tuning {
  /// Keys that are summed apart before they join what came before, at multiples of it whatever T and the number of
  /// threads are: part of the result's bits. Shorter ones pay for more joins (64: 4 to 8% of a call; Emerald Rapids,
  /// 2026-12).
  static constexpr index_t chunk = 128;
  /// Keys of a chunk whose weights are added one after the other. Of equal ones each addition rounds in one direction:
  /// with 127 equal keys after a smaller one a row was off by 3.8 times what the contract allows, in runs of 64 by 1.9,
  /// of 32 by 1.25, of 16 by 0.85. Calls take 1.01 to 1.02 of the time by these, causal ones 1.04 to 1.07 (32: 1.02 to
  /// 1.04; Emerald Rapids, 2026-12).
  static constexpr index_t run = 16;
  /// Chunks that each of the threads of a batch element sums before all are joined: their sums take memory, and threads
  /// meet twice for each such round. On 65536 x 512 rounds of 4, 8, 16 and 64 take 0.99 to 1.04, 1.0 to 1.03, 0.96 to
  /// 1.01 and 0.96 to 1.01 of a single one's time, on 2048 x 512 1.03, 1.0, 1.0 and 1.0 (Zen 5, two threads, 2026-11).
  static constexpr index_t round = 8;
  /// Rows that go through the kernel together. One load and store of a lane's sums then serves as many keys.
  static constexpr index_t rows = 4;
  /// The same of arrays that no cache holds: two panels of four rows, one of them asked for, are more
  /// than the first-level cache. Two rows take 0.93 of the time on 268 MB, causal 0.79 on one thread and 0.93 on two
  /// (Zen 5, 2026-11); Emerald Rapids had been 1.0 to 1.04 with two rows everywhere.
  static constexpr index_t uncached_rows = 2;
  /// Most channels of one column block: its sums take nine arrays, which must leave room for rows in the first-level
  /// cache.
  static constexpr index_t column_block = 2048 / static_cast<index_t>(sizeof(C));
  /// Narrowest column block that a row is cut into for the sake of more threads; below a kilobyte the memory system
  /// delivers half its bandwidth.
  static constexpr index_t narrowest = 1024 / static_cast<index_t>(sizeof(C));
  /// Columns from a load to the prefetch beside it.
  static constexpr index_t reach = 1024 / static_cast<index_t>(sizeof(C));
  /// Bytes from which on lines of an output are asked for that is written through the caches: on 4 MiB a causal call
  /// takes 1.1 times as long by it and another one 1.04 times, on 10 MB they take 0.96 and 0.98 of the time (Zen 5, two
  /// threads, 2026-11).
  static constexpr index_t prefetched = index_t{8} << 20;
  /// Elements below which starting threads may cost more than it saves: half as many take one thread 5.6 us and two of
  /// them 5 to 9, as a team starts in 2 to 6 us (Zen 5, 2026-11, 256 x 64). None where the tests set
  /// the grain to 1.
  static constexpr index_t serial = AFT_PARALLEL_GRAIN / 64;
  /// When a maximum moves, the exponent is set this far above it, so that random keys soon stop moving it.
  static constexpr C slack = C(16);
  /// Values in this range need no scale: sums of 2^40 of them stay finite, and what their least weights lose is below
  /// the rounding of the sum.
  static constexpr C value_low = sizeof(C) == 4 ? C(0x1p-40) : C(0x1p-300);
  static constexpr C value_high = sizeof(C) == 4 ? C(0x1p40) : C(0x1p300);
};

}  // namespace aft::inline AFT_ISA::cpu_impl
