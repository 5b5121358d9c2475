// SPDX-License-Identifier: Apache-2.0
/// @file gemm/tuning.hpp  Sizes of the tile engine, each with the measurement that chose it.
#pragma once

#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
struct tuning {
  /// Rows of a register tile; its columns are two vectors. With 32 registers 14 rows make 28 accumulators, and one
  /// broadcast of a weight feeds num and den (Zen 5, 2026-11: 0.96 of oneDNN's sgemm for a hand-written tile). With
  /// 16 registers 6 rows make 12. NEON multiplies by a lane of a register, so whole vectors of weights are loaded in
  /// place of broadcasts: 12 rows and three of them take 34 instructions for 24 multiply-adds and none of the stack; 14
  /// rows and broadcasts took 55 for 28, 8 of them of the stack (counted, g++ 12; not timed).
#if defined(__AVX512F__)
  static constexpr index_t MR = 14;
#elif defined(__aarch64__)
  static constexpr index_t MR = 12;
#else
  static constexpr index_t MR = 6;
#endif
  /// Groups of a panel's rows whose products begin and end with their own keys, where a window or causality cuts
  /// through the panel. A tile of 76 steps takes 0.90 of its time by it, strict(32) 0.96, its backward call 0.98, and
  /// full, causal, of 197 keys 0.97 (Emerald Rapids, 2026-11).
  static constexpr index_t edge_groups = MR / 3;
  /// The first row of such a group. Those at the ends are no shorter than others: few sums wait for each other.
  static constexpr index_t edge_group(index_t i) {
    return 2 * i <= edge_groups ? ceil_div(i * MR, edge_groups) : i * MR / edge_groups;
  }
  /// Heights from here on have a kernel of their own, which alone may end in a band edge; below, every second or third
  /// one has. All of them were 1.3 of the 10.5 seconds that a file with conv_backward takes to compile.
  static constexpr index_t exact_rows = MR - 2;
  /// Columns of a register tile.
  static constexpr index_t NR = 2 * lanes<C>;
  /// Panels whose weights are read at once where they are columns of w: a panel takes most of a cache line of each row,
  /// rows 16 KiB apart in one set of the caches. On 1 x 4096 x 512 full_backward takes 0.95 of its time with 2, 4 or 8;
  /// matrices that lie in the caches gain nothing.
  static constexpr index_t columns_together = 4;
  static constexpr index_t many_columns = 512;
  /// Keys per pass over a panel: 14 x 512 floats are 28 KiB, which stay in the first-level cache; 1024 cost 20% at
  /// long T. Also the length after which partial sums are joined, so it is part of the result's bits.
  static constexpr index_t KC = 512;
  /// Keys of a pass that are summed apart before they join the others; at the end up to half as many more. Each
  /// addition rounds by up to half a last place of the sum so far: an average over 1000 keys of nearly one size was off
  /// by 1.4 times what the contract allows with runs of 512, by 0.3 with these. They take 0.5 to 2 % of a call's
  /// time, runs of 32 3 to 4 % (Emerald Rapids, 2026-11). Sums of pairs of bfloat16 are allowed more, and go without.
  static constexpr index_t run = 64;
  /// Packed weights of one block of rows, over all threads. Each block packs the keys again; 2 MiB cost 10-20%. Where
  /// the weights take more and all packed keys take as many bytes at most, keys are packed once and come first.
  static constexpr index_t weight_bytes = AFT_WEIGHT_BYTES;
  /// A thread's weights beside them, which come back for every lane tile from the second-level cache: full on two
  /// threads takes 0.90 to 0.96 of its time on 1 x 4096 x 512 and 0.96 to 0.98 on 2 x 3072 x 256, causal 0.88 to 0.91
  /// and 0.93 to 0.96, backward 0.92 to 0.97 and 0.94 to 0.98; with half or twice as many bytes as long, within noise
  /// (Emerald Rapids, 2026-11).
  static constexpr index_t own_weight_bytes = index_t{1} << 20;
  /// Packed keys of a outer block of keys, see gemm/loop_nest_k_outer.hpp: half of a second-level cache, so that a
  /// thread has them all at hand for every panel. 1 MiB, half the passes, took as long on two threads, and longer while
  /// other programs used the third-level cache (Zen 5, 2026-11, full on 1 x 4096 x 512; so are the numbers below).
  static constexpr index_t outer_bytes = AFT_OUTER_BYTES;
  /// Calls go by outer blocks of keys from so many keys on, if the packed ones of all tiles take 12 MiB. It took 1.03
  /// to 1.08 of the time with 4096 keys and an eighth of the memory, 0.96 to 1.0 with 8192 and 0.87 with 16384, where
  /// packed keys leave the caches; 1.06 to 1.12 with 1024 and 2048 keys, and with 4096 of half as many channels.
  static constexpr index_t outer_keys = AFT_OUTER_KEYS;
  /// Causal calls, whose rows see half of the keys that are formed for them, lose more: 1.07 to 1.16 of the time with
  /// 4096 keys, by the minute, 0.96 with 8192.
  static constexpr index_t outer_keys_causal = 2 * outer_keys;
  static constexpr index_t outer_from = 3072 * outer_keys;
  /// Sums of a chunk of panels. For each chunk all keys are formed anew: 3 times for 4096 keys, some 0.8% each.
  static constexpr index_t outer_sums = outer_bytes / 4 * 13;
  /// A chunk has so many panels a thread at least.
  static constexpr index_t outer_panels = outer_bytes >> 15;
  /// Weights of a block, packed for a outer block of keys: two panels. With four, threads waited longer for each
  /// other, 1.01.
  static constexpr index_t outer_weights = outer_bytes / 8;
  /// All of these sizes where weights are u v^T: each pass forms them again, so there are fewer passes. With rank 64
  /// and 512 channels, which one pass takes then, 0.89 of the time that weights_first needs for 4096 keys, 0.77 for
  /// 8192 and 0.64 for 16384, causal 0.79 and 0.50 for the last two; rank 256 on 4096 keys 1.03. Sizes half or twice as
  /// large are no faster for 8192, and for 16384 1.03 and 0.95 (Ice Lake at 2.8 GHz, two threads, 2026-11).
  static constexpr index_t outer_made = 4;
  /// Packed keys that one thread works on together, so that they stay in the second-level cache.
  static constexpr index_t key_bytes = index_t{1} << 20;
  /// Lane tiles of such a group, if those bytes allow; one weight panel is then read from the first-level cache this
  /// often.
  static constexpr index_t group = 4;
  /// Keys of short sequences leave room for more: rows of k and v are then read in longer runs, which the hardware
  /// foresees. 24 lane tiles in place of 4 on 32 x 197 x 384, one thread: local 7.1 -> 6.3 ms, its backward call 19.2
  /// -> 17.9 ms, full 0.86 -> 0.89 of the sgemm, in bfloat16 0.50 -> 0.60 of the matmul. Longer sequences lose by it.
  static constexpr index_t wide_bytes = index_t{640} << 10;
  static constexpr index_t wide_group = 24;
  /// Dense columns of a panel, at most, that are multiplied window by window; wider ones go the way of dense biases.
  /// (strict(32) takes 0.80 to 0.92 of that way's time, strict(256) and strict(480) as long.)
  static constexpr index_t window_widest = 1024;
  /// Packed keys of a group that are kept for all panels of narrow windows, beyond key_bytes: read once and in order,
  /// they may come from the third-level cache, and else each is formed twice. strict(32) on 2 x 3072 x 256 and 1 x 4096
  /// x 512 takes 0.83 of its time by it, the backward call 0.87 and 0.90. Backward calls have 4 MiB a thread in place
  /// of 2, for groups of 8: 0.92 to 0.95 of the time on 2 x 3072 x 256, 1 x 4096 x 512 and 4 x 2048 x 512 (Emerald
  /// Rapids, 2026-11); 8192 positions gained nothing (Zen 5), and with 8 MiB 16384 took 1.37.
  static constexpr index_t window_bytes = index_t{4} << 20;
  /// The same for a forward call, which then goes on with groups of two: strict(32) on 1 x 4096 x 512 keeps 3.3 instead
  /// of 5.7 MB on two threads, in 1.04 of the time on Zen 5 and 0.92 on Emerald Rapids, whose backward call takes 1.03.
  static constexpr index_t forward_window_bytes = index_t{3} << 19;
  /// Columns that are kept beside those of a panel before what is still needed moves to the front: 4 to 16 panels
  /// differ by less than noise.
  static constexpr index_t window_spare = 16 * MR;
  /// Rows of gradients and averages that are asked for before they are read: 4 to 24 differ by less than noise.
  static constexpr index_t prefetch_distance = 24;
  /// The gradient of a window's bias: a tile is band_rows queries by band_keys keys, an accumulator a pair with
  /// channels as lanes, and as many accumulators as a few vectors have lanes. (Zen 5, 2026-11, strict(32) on 8 x 1024 x
  /// 512, one thread, the whole backward call; so are the numbers below.)
#if defined(__AVX512F__) || defined(__aarch64__)
  static constexpr index_t band_rows = 4;
#else
  static constexpr index_t band_rows = 2;
#endif
  static constexpr index_t band_keys = 4;
  /// Lane tiles that are summed before lanes are: their keys fit the first-level cache. Groups have as many, if their
  /// columns may be kept.
  static constexpr index_t band_group = 8;
  /// Chains of groups of lane tiles whose products are summed apart: so many threads have work without dividing rows.
  /// 4 in place of 8 took 0.96 to 0.99 of the time on 1 x 4096 x 512, where a chain's sums are 1.2 MB; four times as
  /// many where there are lane tiles enough, so that threads end together, are no slower on 8 x 1024 x 512.
  static constexpr index_t partials = 4;
  static constexpr index_t many_tiles = 128;
  /// Wider windows go the way of dense biases. 319 wide this one takes 0.7 of that way's time on 8 x 1024 x 512, 499
  /// wide 0.86, and 0.67 on 32 x 512 x 384.
  static constexpr index_t band_widest = 512;
  /// Panels whose results are held while the depth blocks go by.
  static constexpr index_t MC_panels = 64;
  /// Bytes that they take at most, of all threads. Groups of four reach it with 19 threads, of eight with 10; no one
  /// has measured so many.
  static constexpr index_t MC_bytes = index_t{8} << 20;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
