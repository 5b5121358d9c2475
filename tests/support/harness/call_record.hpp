// SPDX-License-Identifier: Apache-2.0
/// @file call_record.hpp  Notes what kinds of calls the tests compared with the reference, for docs/support.md.
#pragma once

#include "call/setup.hpp"

namespace aft::test {

/// Where a call ran.
enum class ran_on { cpu, emulated_device, gpu };

/// Appends a line `operator dtype backend direction option` to the file that AFT_TEST_RECORD names, for each option of
/// the call that is not the default, each line once a process. Without the variable it does nothing.
void record_call(dtype type, const setup& s, ran_on backend, bool backward);

}  // namespace aft::test
