// SPDX-License-Identifier: Apache-2.0
/// @file engine.hpp  The library, with its engine taken from the harness instead of being compiled once more.
#pragma once

#include <aft/aft.hpp>

namespace aft {
extern template void cpu_forward<float, family::full>(const problem&, const cpu&);
extern template void cpu_forward<float, family::local>(const problem&, const cpu&);
extern template void cpu_forward<float, family::simple>(const problem&, const cpu&);
extern template void cpu_forward<float, family::conv>(const problem&, const cpu&);
extern template void cpu_forward<float, family::sparse>(const problem&, const cpu&);
extern template void cpu_forward<float, family::simple_wide>(const problem&, const cpu&);
extern template void cpu_forward<double, family::full>(const problem&, const cpu&);
extern template void cpu_forward<double, family::local>(const problem&, const cpu&);
extern template void cpu_forward<double, family::simple>(const problem&, const cpu&);
extern template void cpu_forward<double, family::conv>(const problem&, const cpu&);
extern template void cpu_forward<double, family::sparse>(const problem&, const cpu&);
extern template void cpu_forward<double, family::simple_wide>(const problem&, const cpu&);
extern template void cpu_backward<float, family::full>(const backward_problem&, const cpu&);
extern template void cpu_backward<float, family::local>(const backward_problem&, const cpu&);
extern template void cpu_backward<float, family::simple>(const backward_problem&, const cpu&);
extern template void cpu_backward<float, family::conv>(const backward_problem&, const cpu&);
extern template void cpu_backward<float, family::sparse>(const backward_problem&, const cpu&);
extern template void cpu_backward<float, family::simple_wide>(const backward_problem&, const cpu&);
extern template void cpu_backward<double, family::full>(const backward_problem&, const cpu&);
extern template void cpu_backward<double, family::local>(const backward_problem&, const cpu&);
extern template void cpu_backward<double, family::simple>(const backward_problem&, const cpu&);
extern template void cpu_backward<double, family::conv>(const backward_problem&, const cpu&);
extern template void cpu_backward<double, family::sparse>(const backward_problem&, const cpu&);
extern template void cpu_backward<double, family::simple_wide>(const backward_problem&, const cpu&);
extern template stream_engine find_stream_engine<float>();
extern template stream_engine find_stream_engine<double>();
}  // namespace aft
