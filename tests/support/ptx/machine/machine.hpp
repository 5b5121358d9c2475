// SPDX-License-Identifier: Apache-2.0
/// @file machine.hpp  What translated PTX is written in: registers' arithmetic, memory, and what threads do together.
///
/// What this shows: that the instructions which nvcc made of the kernels, inline assembly with its operands,
/// immediates, descriptors and parities included, compute what is asked, each as the PTX manual (version 9.0) describes
/// it. What it cannot show: what ptxas makes of them (registers, scheduling, hazards that it inserts barriers for);
/// that the manual has been read right where nobody can compare with a device; orders of memory that are weaker than
/// one thread after the other, but for those below; whether anything is fast. Of orders the emulator shows late copies,
/// products that read their operands late, and barriers that copies cannot see; of proxies, that what threads have
/// written to shared memory is not read by a warpgroup's product before a fence. Functions that hardware approximates
/// (ex2, lg2, div, rcp) are off by as much as the manual allows, in a direction that depends on their bits.
#pragma once

#include <device_emulator.hpp>

#include "launch.hpp"
#include "spaces.hpp"
#include "scalars.hpp"
#include "together.hpp"

namespace aft::ptx {

using aft::emulator::block_index;
using aft::emulator::thread_index;

}  // namespace aft::ptx
