// SPDX-License-Identifier: Apache-2.0
/// @file runtime/streaming.hpp  From which sizes on results are written by streaming stores: one policy for every
/// engine.
#pragma once

#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Thresholds in bytes, counted as numbers are stored. A streaming store does not read the line it writes; it pays once
/// no cache would have kept the line for its reader.
struct streaming_from {
  /// One output. On outputs of 64 MiB a stream is 1.1 times as fast with such stores, on outputs of 4 MiB, which a
  /// cache of 32 MiB holds, 0.6 times (Zen 5, 2 threads, 2026-11); sizes between were not measured, nor other caches.
  static constexpr index_t output_bytes = index_t{16} << 20;
  /// All arrays of a call that writes more than one, or writes later than it reads: more than a third-level cache keeps
  /// for whoever reads them next. strict(32) on 32 x 197 x 384 takes 0.95 of the time by it, its backward call 0.90, on
  /// 2 x 3072 x 256 0.83 and on 1 x 4096 x 512 0.90, that of `full` 0.97 to 1.01; of calls on 2 MB arrays, which may be
  /// read from the cache afterwards, 0.98 and 0.89. Of `simple` on 32 x 197 x 384 causal calls take 0.82 to 0.88,
  /// backward ones 0.80 to 0.92, on 4 x 1024 x 512 0.88 and 0.83; but others forward on 1 x 4096 x 512 1.16 (Zen 5, two
  /// threads, 2026-11).
  static constexpr index_t call_bytes = index_t{32} << 20;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
