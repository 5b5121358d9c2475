// SPDX-License-Identifier: Apache-2.0
/// @file turns.hpp  Which calls of a test are compared where: types, engines and places take turns.
#pragma once

#include <cstdint>

#include "call/setup.hpp"

namespace aft::test {

#if defined(AFT_TEST_FULL)
inline constexpr bool all_take_part = true;
#else
inline constexpr bool all_take_part = false;
#endif

/// A number that differs between calls of a test, of most that tells them apart.
std::uint64_t mixed(const setup& s);

/// A number for each call that a test compares, of all that a call has.
std::uint64_t number_of(dtype type, const setup& s, const numbers& x, bool backward);

/// Whether the current engine is asked for this call. The program's own always is. Of the others each call takes every
/// second one, for they are the same functions by other flags or another compiler: a mistake that one of them has and
/// the program's own has not is one of many calls. One with products of its own is asked whenever it takes them.
bool engine_takes_part(dtype type, const setup& s);

/// Whether a call that is tried with every type is this one's. Float and double are the same kernels with vectors of
/// another length, and what the emulated device runs takes a hundred times as long as a processor: there one type of
/// each kernel is enough. Only where all types are asked for, of which one is left; a test that names its types gets
/// those.
bool is_its_turn(dtype type, const setup& s);

/// Whether the current place can say of the call what no other does. On the emulated tensor cores that takes a matrix
/// product, which no double, no AFT-simple and no mask pair by pair has: the run without them has done those the same
/// way. The emulated device takes float for some calls and double for the others, and so with half and bfloat16.
bool concerns(dtype type, const setup& s);

}  // namespace aft::test
