// SPDX-License-Identifier: Apache-2.0
/// @file simd/returned_in_place.hpp  How a function returns a struct of a few vectors.
#pragma once

#include "vec.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// The last member of a struct of up to four vectors that functions return. 64-bit ARM returns those in registers, and
/// GCC 12 then copies the struct in one piece, through the stack, where the call is inlined too: an exp was 33
/// instructions by it in place of 27. With a copy constructor of its own it is returned in memory, that is in place.
/// (As a member it counts for structured bindings, which would find one name too few.)
#if defined(AFT_NEON64)
struct returned_in_place {
  returned_in_place() = default;
  [[gnu::always_inline]] returned_in_place(const returned_in_place&) noexcept {}
  [[gnu::always_inline]] returned_in_place& operator=(const returned_in_place&) noexcept { return *this; }
};
#define AFT_RETURNED_IN_PLACE [[no_unique_address]] returned_in_place how_it_is_returned{};
#else
#define AFT_RETURNED_IN_PLACE
#endif

}  // namespace aft::inline AFT_ISA::cpu_impl
