// SPDX-License-Identifier: Apache-2.0
/// @file device/tuning.hpp  Sizes of the kernels' tiles. None has been chosen by a measurement on a device yet; each
/// says what it was derived from.
#pragma once

#include <aft/core/config.hpp>

namespace aft::inline AFT_ISA::cuda_impl::tuning {

/// Columns of a tile: the lanes of a warp, so that 16-byte sectors of k and v are read whole.
inline constexpr int lanes = 32;
/// Depth of a tile: what is staged between two barriers, and how many terms are summed before they merge the rest, so
/// part of a result's bits. 32 x 32 values of k (twice) and v take 12 KiB of float.
inline constexpr int depth = 32;
/// Warps of a block, and rows that one thread sums: 16 rows share a staged tile. Not measured.
inline constexpr int warps = 8;
inline constexpr int rows_per_thread = 2;
/// Rows and warps of a block of the matrix product, 64 x 32 columns of num and den: two blocks and their 64 sums a
/// thread fit the registers of a multiprocessor, one tile of keys in flight beside the one in work fits 48 KiB. Not
/// measured.
inline constexpr int product_rows = 64;
inline constexpr int product_warps = 4;
/// Channels of a head and keys from which on the matrix product is taken: half a tile of columns filled, and two tiles
/// of keys. Not of the batch, whose size no element's bits may depend on. Not measured.
inline constexpr index_t product_channels = 16;
inline constexpr index_t product_keys = 64;
/// Rows, channels (num and den of each) and keys of a block's tile of the bfloat16 product: 128 x 256 x 64, 43
/// multiply-adds for each byte that is copied, and two tiles fit the 99 KiB that every device of compute capability 8.0
/// gives. Not measured.
inline constexpr int gemm_rows = 128;
inline constexpr int gemm_channels = 128;
inline constexpr int gemm_depth = 64;
/// Rows of tiles that go through all channels together: with 128 channels each, 16 blocks then share what they read of
/// either side in the second-level cache. Not measured.
inline constexpr int gemm_group = 16;
/// Keys up to which that product is taken: it sums them in one row of additions, each of which may cut
/// (docs/adr/0012-bfloat16-products-cuda.md). Derived, not measured.
inline constexpr index_t gemm_keys = 65536;
/// Scratch for its left side; of gradients, which have parts of a factorized bias and of its gradient beside it, so
/// that all stay within the 64 MiB of tiles that the contract allows.
inline constexpr index_t gemm_bytes = index_t{32} << 20;
inline constexpr index_t gemm_key_bytes = index_t{24} << 20;
/// Queries and keys of a tile of the bias gradient, a pair a thread, and the channels staged for it. Not measured.
inline constexpr int pairs = 16;
inline constexpr int pair_channels = 16;
/// Of a column, what a thread reads together, as numbers of the arithmetic: 8 positions, 4 in double. At 32 warps a
/// multiprocessor, 8 of two tensors in bfloat16 are 32 KiB under way, about what a memory of 4 TB/s and 700 ns takes.
inline constexpr int bytes_at_once = 32;
/// The gradient of a bias: blocks that slices of the columns make of few pairs, about four for each multiprocessor of a
/// large device, and tiles of 16 columns that a slice has at least. 16 blocks of 197 x 197 pairs took 6.5 ms on an H200
/// with 132 of them, the 288 of 3072 x 3072 pairs 14. Part of a result's bits.
inline constexpr index_t pair_blocks = 512;
inline constexpr index_t pair_slice_tiles = 64;
/// Positions that one warp scans on its own: 16 chunks of a sequence of 1024 keep a device busy that has 32 channels a
/// warp. Part of a result's bits. Not measured.
inline constexpr int scan_length = 64;
/// Warps that merge the folds of a column, at most: all that a block can have, and half of them for double or where a
/// warp goes on to the exact sums, whose registers would not fit. Part of a result's bits. Not measured.
inline constexpr int run_warps = 32;
inline constexpr int wide_run_warps = 16;
/// Blocks a multiprocessor that look for flagged rows: what fits at once. Each warp has 32 words in flight, so that two
/// million of them are a few rounds. Not measured.
inline constexpr index_t flag_blocks = 8;
/// Scratch for parts of an expanded bias or of its gradient, far below the 64 MiB of tiles that the contract allows.
inline constexpr index_t block_bytes = index_t{16} << 20;

}  // namespace aft::inline AFT_ISA::cuda_impl::tuning
