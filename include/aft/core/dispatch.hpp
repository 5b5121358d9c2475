// SPDX-License-Identifier: Apache-2.0
/// @file dispatch.hpp  The seam between operators and backends: an operator calls these, a backend defines them.
#pragma once

#include "executors.hpp"
#include "problem.hpp"

namespace aft {
inline namespace AFT_ISA {

/// C is the arithmetic type, float or double. The problem is valid: every check has been made. A problem with
/// bias_kind::filter is a convolution, `none` with an unbounded window is AFT-simple, a bounded window is AFT-local.
template <class C>
void cpu_forward(const problem& p, const cpu& exec);

/// Overwrites every gradient that is set. `p.lse` and `p.average` are used when both are set.
template <class C>
void cpu_backward(const backward_problem& p, const cpu& exec);

}  // namespace AFT_ISA
}  // namespace aft
