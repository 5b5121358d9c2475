// SPDX-License-Identifier: Apache-2.0
/// @file calls.hpp  A library of somebody's that uses aft and shows nothing of it but this.
#pragma once

#include <string>

#define CALLS_EXPORT [[gnu::visibility("default")]]

/// Calls an operator with two threads and compares with the formula; says what is wrong, or nothing.
CALLS_EXPORT std::string call_with_two_threads();

/// Makes a call that aft refuses; the exception leaves this library.
CALLS_EXPORT void make_a_wrong_call();

/// aft::build_info() of this library's file.
CALLS_EXPORT const char* build_info_of_calls();
