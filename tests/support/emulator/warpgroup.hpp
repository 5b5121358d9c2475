// SPDX-License-Identifier: Apache-2.0
/// @file warpgroup.hpp  Twins of the functions in aft/cuda/device/hopper.cuh: what a block does besides its threads.
///
/// Copies arrive at a random moment, with NaN in their place until then. A product reads its operands when it starts
/// and is done when it is waited for: if they have changed by then, or the sums are looked at before, there is NaN.
/// Waiting for what cannot come is an error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device_emulator.hpp"

namespace aft::emulator {

void init_barrier(void* barrier, int arrivals);
/// To the copies: a barrier that they do not see is an error.
void show_barriers();
/// `bytes` more are to be copied before the phase is over.
void arrive(void* barrier, int bytes);
void wait_phase(const void* barrier, unsigned parity);
bool phase_over(const void* barrier, unsigned parity);
void copy_bulk(void* to, const void* from, std::size_t bytes, void* barrier);

void begin_products();
/// The operands are described as the PTX manual's matrix descriptors have it, with the 128-byte swizzle.
void multiply_group(float (&d)[128], std::uint64_t a, std::uint64_t b);
void commit_products();
void wait_products(int pending);

/// Whether a forward call takes the kernel for warpgroups, see current_products().
bool has_warpgroups();

/// What goes on between the threads' turns. `random` decides what arrives.
void begin_block_events();
void pass_time(std::uint64_t random);
/// Throws where a block has ended with copies under way.
void end_block_events();

/// Lets others go on. Throws where nothing else has happened for so long that nothing will.
void yield();
/// Something has happened that others may wait for.
void note_progress();

/// acc += a b^T, as the tensor cores of tensor_unit.cpp add.
void multiply_bfloat16_rows(const std::uint16_t (&a)[64][16], const std::uint16_t (&b)[256][16], float (&acc)[64][256]);

}  // namespace aft::emulator
