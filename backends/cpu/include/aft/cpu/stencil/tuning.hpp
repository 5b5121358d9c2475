// SPDX-License-Identifier: Apache-2.0
/// @file stencil/tuning.hpp  Sizes of the stencil, each with the measurement that chose it.
#pragma once

#include "../simd/vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

template <class C>
struct tuning_stencil {
  /// Vector registers; 32-bit ARM has half as many as 64-bit.
#if defined(__AVX512F__) || defined(__aarch64__)
  static constexpr index_t registers = 32;
#else
  static constexpr index_t registers = 16;
#endif
  /// Positions that are folded, proven, gated and stored together; their staging buffers stay in the first-level cache.
  static constexpr index_t block = 56;
  /// Least channels with one key and one head for which denominators are folded apart: it saves nearly half of the
  /// multiply-adds, and costs spreading each denominator over its channels.
  static constexpr index_t grouped_channels = 4;
  /// Most positions for which gradients are folded so: a thread keeps some 30 vectors for each of them, 8 MiB here.
  static constexpr index_t grouped_positions = 4096;
  /// Lane tiles whose inputs a forward call reads together, so that memory is read in runs of several lines, while
  /// as many ahead are asked for, into the next item (Zen 5, 2026-11, 256 x 14 x 14 x 384, two threads, least times):
  /// 6, 8, 12 and 24 tiles took 31.2, 32.9, 31.7 and 33.5 ms with a head for every channel, 18.0, 18.6, 18.4 and 19.2
  /// ms with 16 heads; 24 and nothing asked for in the next item 32.5 and 18.4 ms. No faster backward. Shorter vectors
  /// (AVX2, Emerald Rapids, 64 images): 12, 16, 24 and 48 tiles 0.92, 0.87, 0.86 and 0.86 of the time of 6, with 16
  /// heads 0.95, 0.97, 0.96 and 0.96.
  static constexpr index_t group = sizeof(vec<C>) == 64 ? 6 : 24;
  /// Lane tiles of which a gradient call asks for all lines of a row together, while as many are worked on. Time of 1
  /// and 2, of 6 and of 8 against 4 (Emerald Rapids, 2026-11, 64 and 256 x 14 x 14 x 384, one and two threads): 1.06,
  /// 1.01, 1.01 and 1.02.
  static constexpr index_t prefetched = 4;
  /// Buffers of a group take no more than this, about a second-level cache; a single tile may.
  static constexpr index_t group_bytes = index_t{1280} << 10;
  /// Bytes of a row that a forward call over a sequence works on together; half of them take 0.97 to 1.03 of its time
  /// (Emerald Rapids, 2026-11).
  static constexpr index_t sequence_bytes = 1024;
#if AFT_SEQUENCE_KEYS > 0  // the tests' sizes are small
  static constexpr index_t sequence = AFT_SEQUENCE_KEYS, sequence_twice = sequence, sequence_apart = sequence,
                           sequence_few = sequence;
#else
  /// Least lengths of a sequence that is worked on in parts. The time it takes against a lane tile's whole sequence at
  /// once, for 512 channels, 7 taps, one thread (Emerald Rapids, 2026-11): 196 keys 0.99 to 1.02, 256 0.91 to 0.94,
  /// 1024 0.77, 8192 0.47.
  static constexpr index_t sequence = 256;
  /// Where keys after the box count, all keys are read twice: 1024 keys 1.0, 2048 1.03, 3072 0.79, 8192 0.73.
  static constexpr index_t sequence_twice = 3072;
  /// Heads whose denominators could be folded apart, causal: 16 of them 256 keys 1.15, 512 1.0 to 1.1, 1024 0.84 to
  /// 0.9, 2048 0.85; 128 of them, 1024 keys 0.76 (Zen 5, two threads, 8 sequences; with one 1.0).
  static constexpr index_t sequence_apart = 1024;
  /// Few lane tiles. 4 channels: 512 keys 1.05, 1024 1.12; 16 channels: 4096 keys 0.73.
  static constexpr index_t sequence_few = 4096;
#endif
  /// Few lane tiles: with 3 of them 0.93, with 2 of them 1.01 to 1.06 for 256 and 512 keys.
  static constexpr index_t sequence_tiles = 3;
  /// Most taps, as their keys are held: 4096 keys, 63 taps 0.68, 127 0.80, 255 0.92 (where keys are read twice, 127
  /// 0.98 and 255 1.02), 511 1.02.
  static constexpr index_t sequence_taps = 128;
  /// Where denominators could be folded apart: 2048 keys, 31 taps 0.99; 8192 keys, 31 taps 0.70 (before rows were used
  /// where they lie).
  static constexpr index_t sequence_taps_apart = 32;
  /// Parts of the batch whose filter gradients are summed apart and then joined in order: enough of them to feed the
  /// threads, and few, since each holds a table of the filter's size. Fixed, so the bits do not depend on threads.
  static constexpr index_t batch_parts = 16;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
