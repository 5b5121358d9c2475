// SPDX-License-Identifier: Apache-2.0
/// @file engine.hpp  The library, with its engine taken from the harness instead of being compiled once more.
#pragma once

#include <aft/aft.hpp>

namespace aft {
extern template void cpu_forward<float>(const problem&, const cpu&);
extern template void cpu_forward<double>(const problem&, const cpu&);
extern template void cpu_backward<float>(const backward_problem&, const cpu&);
extern template void cpu_backward<double>(const backward_problem&, const cpu&);
}  // namespace aft
