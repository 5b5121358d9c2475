// SPDX-License-Identifier: Apache-2.0
/// @file together.hpp  What threads of a warp, a warpgroup or a block do together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace aft::ptx {

/// Each thread's first act; `shared` bytes are the block's.
void begin_thread(std::size_t shared);
unsigned char* shared_storage();
std::size_t shared_bytes();
/// A thread has written there, which products of warpgroups see only behind a fence.
void note_write(std::size_t offset, std::size_t bytes);
/// At a thread's begin: the first of a block forgets what the last block has left. And at that of a launch.
void begin_products(std::size_t shared);
void forget_block();

void barrier(std::uint32_t number, int line);
bool barrier_any(std::uint32_t number, bool x, int line);
void warp_barrier(std::uint32_t lanes, int line);

enum class exchange { xor_mask, index, up, down };
struct shuffled {
  std::uint32_t value;
  bool valid;  ///< there is such a lane
};
/// `bounds` is the manual's operand c: the last lane, and from bit 8 on what divides the warp.
shuffled shuffle(exchange mode, std::uint32_t x, std::uint32_t b, std::uint32_t bounds, std::uint32_t lanes, int line);
std::uint32_t ballot(bool x, std::uint32_t lanes, int line);

std::array<std::uint32_t, 4> load_matrices(std::uint64_t row, int line);

enum class operand_kind { tf32, half, bfloat16 };
/// mma.sync, 16 x 8 x 8 of TF32 or 16 x 8 x 16 of the others.
std::array<float, 4> multiply_warp(operand_kind kind, const std::array<std::uint32_t, 4>& a,
                                   const std::array<std::uint32_t, 2>& b, const std::array<float, 4>& c, int line);

void copy_async(std::uint64_t to, std::uint64_t from, int line);
void copy_bulk(std::uint64_t to, std::uint64_t from, std::uint32_t bytes, std::uint64_t barrier, int line);
void init_barrier(std::uint64_t barrier, std::uint32_t arrivals, int line);
void arrive(std::uint64_t barrier, std::uint32_t bytes, int line);
/// Whether the phase of this parity is over; where it is not, others run before this returns.
bool try_wait(std::uint64_t barrier, std::uint32_t parity, int line);
/// fence.proxy.async: copies see the barriers that there are, and products what threads have written.
void show_to_copies();

/// wgmma.mma_async, 64 x 256 x 16 of bfloat16. Sums under way are marks that say which, until they are settled; they
/// may be moved from register to register, which is no instruction once registers are given out.
void multiply_group(float (&sums)[128], std::uint64_t a, std::uint64_t b, bool adds, int sign, int line);
void warpgroup_fence();
void warpgroup_commit();
void warpgroup_wait(int pending);
/// A register after a wait: the sum where it is done, and a mark, which is NaN, where it is not.
void settle(float& x);

}  // namespace aft::ptx
