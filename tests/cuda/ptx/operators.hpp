// SPDX-License-Identifier: Apache-2.0
/// @file operators.hpp  Calls on translated PTX: those without slots and of one sequence, as a device takes them.
#pragma once

#include <aft/core/problem/problem.hpp>

namespace aft::test {

void translated_forward(const problem& p);
void translated_backward(const backward_problem& p);

}  // namespace aft::test
